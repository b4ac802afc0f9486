// Parses command lines for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/command_line.h"

namespace hisparse::config {

// What the parser made of a command line.
struct Parsed {
  std::variant<Settings, Exit> result;
  std::string out;
  std::string errors;

  bool ok() const { return std::holds_alternative<Settings>(result); }
  const Settings& settings() const { return std::get<Settings>(result); }
  const ServeSettings& serve() const { return settings().serve; }
  const EngineSettings& engine() const { return serve().engine; }
  int exit_code() const { return ok() ? -1 : std::get<Exit>(result).code; }
};

inline Parsed parse(std::vector<std::string> arguments) {
  std::vector<const char*> pointers{"hisparse"};
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  std::ostringstream out;
  std::ostringstream errors;
  auto result = parse_command_line(pointers, out, errors);
  return {std::move(result), out.str(), errors.str()};
}

inline Parsed serve(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"serve", "--model", "m.gguf"});
  return parse(std::move(arguments));
}

inline void expect_usage_error(const Parsed& parsed, const std::string& words) {
  EXPECT_EQ(parsed.exit_code(), kUsageError) << words;
  EXPECT_THAT(parsed.errors, testing::HasSubstr(words));
  EXPECT_THAT(parsed.out, testing::IsEmpty());
}

// Sets a variable for the length of a test.
class ScopedEnv {
 public:
  ScopedEnv(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedEnv() { unsetenv(name_.c_str()); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  std::string name_;
};

}  // namespace hisparse::config
