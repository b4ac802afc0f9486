// config.json as flat key/value facts.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "format/metadata.h"

namespace hisparse::format {

using MetadataMap = std::map<std::string, MetadataValue, std::less<>>;

// Parses a JSON object and flattens it; every key gets `key_prefix` in front.
// * objects: their members, with dotted keys: "rope_scaling.factor";
// * null and empty objects: absent;
// * a list of one scalar kind: one list; integers mixed with reals are reals, booleans are 0 and 1;
// * an empty list: an empty list of strings;
// * any other list (of objects, of lists, of mixed kinds): its elements under their index, as in
//   "layers.0.type"; the key of the list itself is then absent.
// InvalidArgument, naming `file`: what parse_json_object() refuses, two members that flatten to one
// key, and a flattened key longer than 1024 bytes.
absl::StatusOr<MetadataMap> parse_json_metadata(std::string_view text, std::string_view file,
                                                std::string_view key_prefix);

}  // namespace hisparse::format
