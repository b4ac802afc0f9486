// Writers of small checkpoint files for the tests of src/format: they write what they are told,
// right or wrong.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace hisparse::format::testing_support {

// Little-endian bytes, appended.
class ByteWriter final {
 public:
  template <typename T>
  ByteWriter& put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
    return *this;
  }
  ByteWriter& raw(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  ByteWriter& gguf_string(std::string_view text) {
    return put<std::uint64_t>(text.size()).raw(text);
  }
  ByteWriter& pad_to(std::size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_ += '\0';
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// GGUF type numbers (reference/models.md section 3.2).
struct GgufTypes {
  static constexpr std::uint32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6;
  static constexpr std::uint32_t kBool = 7, kString = 8, kArray = 9, kU64 = 10, kI64 = 11,
                                 kF64 = 12;
};

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // as in the file: innermost first
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
};

// A GGUF file in parts; each field can be made to lie.
struct GgufFile {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> pairs;  // written with pair()
  std::vector<GgufTensor> tensors;
  std::string data;
  std::size_t alignment = 32;
  std::uint64_t extra_tensors = 0;  // claimed and not there
  std::uint64_t extra_pairs = 0;

  std::string bytes() const {
    ByteWriter out;
    out.raw(magic).put(version).put<std::uint64_t>(tensors.size() + extra_tensors);
    out.put<std::uint64_t>(pairs.size() + extra_pairs);
    for (const std::string& pair : pairs) out.raw(pair);
    for (const GgufTensor& tensor : tensors) {
      out.gguf_string(tensor.name).put(static_cast<std::uint32_t>(tensor.dims.size()));
      for (const std::uint64_t dim : tensor.dims) out.put(dim);
      out.put(tensor.type).put(tensor.offset);
    }
    if (!data.empty()) out.pad_to(alignment).raw(data);
    return out.bytes();
  }
};

// A metadata pair whose value is `value` as raw bytes.
inline std::string raw_pair(std::string_view key, std::uint32_t type, std::string_view value) {
  return ByteWriter().gguf_string(key).put(type).raw(value).bytes();
}

template <typename T>
std::string pair(std::string_view key, std::uint32_t type, T value) {
  return raw_pair(key, type, ByteWriter().put(value).bytes());
}

inline std::string string_pair(std::string_view key, std::string_view value) {
  return raw_pair(key, GgufTypes::kString, ByteWriter().gguf_string(value).bytes());
}

// An array that claims `count` elements; `elements` are raw.
inline std::string array_pair(std::string_view key, std::uint32_t element_type, std::uint64_t count,
                              std::string_view elements) {
  return raw_pair(key, GgufTypes::kArray,
                  ByteWriter().put(element_type).put(count).raw(elements).bytes());
}

inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return ByteWriter().put<std::uint64_t>(header.size()).raw(header).raw(data).bytes();
}

// A folder under TempDir(), removed with all it holds at the end of the test.
class TemporaryFolder final {
 public:
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "/hisparse_format_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make a folder " << name;
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  // Returns the path of the new file.
  std::string write(std::string_view name, std::string_view content) const {
    const std::string path = path_ + "/" + std::string(name);
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

 private:
  std::string path_;
};

}  // namespace hisparse::format::testing_support
