#include "format/dequantize.h"

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "base/float_formats.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/format_writers.h"

namespace hisparse::format {
namespace {

using testing_support::as_bytes;
using testing_support::ByteWriter;

constexpr std::uint16_t kHalfOne = 0x3c00;
constexpr std::uint16_t kHalfMinusTwo = 0xc000;
constexpr std::uint16_t kHalfQuarter = 0x3400;

std::vector<float> dequantize(base::DType dtype, std::string_view stored, std::size_t count) {
  std::vector<float> out(count, std::nanf(""));
  dequantize_row(dtype, as_bytes(stored), out);
  return out;
}

TEST(Dequantize, ExpandsQ8_0ByHand) {
  ByteWriter block;
  block.put(kHalfMinusTwo);
  for (int i = 0; i < 32; ++i) block.put<std::int8_t>(static_cast<std::int8_t>(i == 31 ? -128 : i));
  const auto values = dequantize(base::DType::kQ8_0, block.bytes(), 32);
  EXPECT_EQ(values[0], 0.0f);
  EXPECT_EQ(values[5], -10.0f);
  EXPECT_EQ(values[31], 256.0f);
}

TEST(Dequantize, ExpandsQ4_0ByHand) {
  ByteWriter block;
  block.put(kHalfQuarter);
  for (int i = 0; i < 16; ++i)
    block.put<std::uint8_t>(static_cast<std::uint8_t>(i | (15 - i) << 4));
  const auto values = dequantize(base::DType::kQ4_0, block.bytes(), 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.25f * static_cast<float>(i - 8));
    EXPECT_EQ(values[static_cast<std::size_t>(i + 16)], 0.25f * static_cast<float>(15 - i - 8));
  }
}

TEST(Dequantize, ExpandsQ4_1ByHand) {
  ByteWriter block;
  block.put(kHalfQuarter).put(kHalfMinusTwo);
  for (int i = 0; i < 16; ++i)
    block.put<std::uint8_t>(static_cast<std::uint8_t>(i | (15 - i) << 4));
  const auto values = dequantize(base::DType::kQ4_1, block.bytes(), 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.25f * static_cast<float>(i) - 2.0f);
    EXPECT_EQ(values[static_cast<std::size_t>(i + 16)], 0.25f * static_cast<float>(15 - i) - 2.0f);
  }
}

TEST(Dequantize, ExpandsPlainTypesByHand) {
  const std::string halves = ByteWriter().put(kHalfOne).put(kHalfMinusTwo).bytes();
  EXPECT_THAT(dequantize(base::DType::kF16, halves, 2), ::testing::ElementsAre(1.0f, -2.0f));
  const std::string brains =
      ByteWriter().put<std::uint16_t>(0x3f80).put<std::uint16_t>(0xc049).bytes();
  EXPECT_THAT(dequantize(base::DType::kBF16, brains, 2), ::testing::ElementsAre(1.0f, -3.140625f));
  const std::string floats = ByteWriter().put(0.1f).bytes();
  EXPECT_THAT(dequantize(base::DType::kF32, floats, 1), ::testing::ElementsAre(0.1f));
  EXPECT_TRUE(dequantize(base::DType::kQ4_0, "", 0).empty());
}

TEST(Dequantize, ReadsFromUnalignedAddresses) {
  const std::string shifted = "?" + ByteWriter().put(0.1f).put(-7.5f).bytes();
  EXPECT_THAT(dequantize(base::DType::kF32, std::string_view(shifted).substr(1), 2),
              ::testing::ElementsAre(0.1f, -7.5f));
}

TEST(DequantizeDeathTest, SizesThatDoNotMatchAreABug) {
  std::vector<float> out(32);
  EXPECT_DEATH(dequantize_row(base::DType::kQ8_0, as_bytes(std::string(33, 'x')), out), "");
  EXPECT_DEATH(dequantize_row(base::DType::kQ8_0, as_bytes(std::string(68, 'x')), out), "");
  EXPECT_DEATH(
      dequantize_row(base::DType::kQ8_0, as_bytes(std::string(34, 'x')), std::span(out).first(31)),
      "");
}

std::string fixture() {
  const char* folder = std::getenv("HISPARSE_TEST_DATA");
  const std::string root = folder == nullptr ? "tests" : folder;
  std::ifstream file(root + "/golden/data/dequantize.bin", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<base::DType> dtype_of(std::uint32_t gguf_type) {
  switch (gguf_type) {
    case 0:
      return base::DType::kF32;
    case 1:
      return base::DType::kF16;
    case 2:
      return base::DType::kQ4_0;
    case 3:
      return base::DType::kQ4_1;
    case 8:
      return base::DType::kQ8_0;
    case 30:
      return base::DType::kBF16;
    default:
      return std::nullopt;
  }
}

struct RecordHead {
  std::uint32_t gguf_type;
  std::uint32_t values;
  std::uint32_t bytes;
};

// The fixture comes from tests/golden/make_dequantize_fixture.py.
TEST(Dequantize, AgreesWithTheGgufPackageBitForBit) {
  const std::string file = fixture();
  ASSERT_FALSE(file.empty()) << "tests/golden/data/dequantize.bin is missing";
  std::size_t at = 0;
  int records = 0;
  for (; at < file.size(); ++records) {
    RecordHead head;
    std::memcpy(&head, file.data() + at, sizeof(head));
    at += sizeof(head);
    const auto dtype = dtype_of(head.gguf_type);
    ASSERT_TRUE(dtype.has_value());
    const auto values =
        dequantize(*dtype, std::string_view(file).substr(at, head.bytes), head.values);
    at += head.bytes;
    for (const float value : values) {
      float expected;
      std::memcpy(&expected, file.data() + at, sizeof(expected));
      at += sizeof(expected);
      ASSERT_EQ(base::float_to_bits(value), base::float_to_bits(expected))
          << base::name_of(*dtype) << ": " << value << " against " << expected;
    }
  }
  EXPECT_EQ(records, 6);
}

}  // namespace
}  // namespace hisparse::format
