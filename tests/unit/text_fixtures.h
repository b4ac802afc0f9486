// Fixture data and vocabularies for the tests of src/text.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "format/metadata.h"
#include "nlohmann/json.hpp"

namespace hisparse::text::testing {

inline std::string data_path(const std::string& name) {
  const char* folder = std::getenv("HISPARSE_TEST_DATA");
  return std::string(folder ? folder : "tests") + "/golden/data/" + name;
}

// Throws (and so fails the test) when the file is missing or not JSON.
inline nlohmann::json read_json(const std::string& name) {
  std::ifstream file(data_path(name));
  return nlohmann::json::parse(file);
}

using MetadataMap = std::map<std::string, format::MetadataValue, std::less<>>;

// The vocabulary of tiny_bpe.json as GGUF metadata.
inline MetadataMap tiny_metadata(const nlohmann::json& fixture, const std::string& pre) {
  return {{"tokenizer.ggml.model", std::string("gpt2")},
          {"tokenizer.ggml.pre", pre},
          {"tokenizer.ggml.tokens", fixture.at("tokens").get<std::vector<std::string>>()},
          {"tokenizer.ggml.token_type", fixture.at("token_type").get<std::vector<std::int64_t>>()},
          {"tokenizer.ggml.merges", fixture.at("merges").get<std::vector<std::string>>()}};
}

struct TokenCase {
  std::string text;
  std::vector<base::TokenId> ids;
};

// Cases are {text, ids} or, for long runs, {unit, count, ids}.
inline std::vector<TokenCase> token_cases(const nlohmann::json& cases) {
  std::vector<TokenCase> result;
  for (const auto& item : cases) {
    TokenCase one;
    one.ids = item.at("ids").get<std::vector<base::TokenId>>();
    if (item.contains("text")) {
      one.text = item.at("text").get<std::string>();
    } else {
      const std::string unit = item.at("unit").get<std::string>();
      for (int i = 0; i < item.at("count").get<int>(); ++i) one.text += unit;
    }
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace hisparse::text::testing
