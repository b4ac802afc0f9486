// Where the pages of one rank lie, in every tier.
#pragma once

#include <cstddef>

#include "device/device.h"
#include "transfer/disk_pool.h"
#include "transfer/page_shape.h"

namespace hisparse::transfer {

// Names what the rank's worker owns; a value. The worker outlives whoever holds one.
struct RankMemory {
  device::Device* device = nullptr;
  PageShape page;
  device::DevicePtr<std::byte> slab;  // [resident slots] pages
  device::DevicePtr<std::byte> host;  // [host slots] pages; host memory, as the device sees it
  DiskPool* disk = nullptr;           // none: no disk tier
};

}  // namespace hisparse::transfer
