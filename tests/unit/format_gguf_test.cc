#include "format/gguf.h"

#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/format_writers.h"

namespace hisparse::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::array_pair;
using testing_support::as_bytes;
using testing_support::ByteWriter;
using testing_support::GgufFile;
using testing_support::GgufTypes;
using testing_support::pair;
using testing_support::raw_pair;
using testing_support::string_pair;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kF16 = 1;
constexpr std::uint32_t kQ4_1 = 3;
constexpr std::uint32_t kQ8_0 = 8;

// Two tensors: "a" is an f32 matrix of 2 rows of 3, "b" is one q8_0 row of 32.
GgufFile small_file() {
  GgufFile file;
  file.pairs = {string_pair("general.architecture", "llama"),
                pair<std::uint32_t>("llama.block_count", GgufTypes::kU32, 2)};
  file.tensors = {{"a", {3, 2}, kF32, 0}, {"b", {32}, kQ8_0, 32}};
  file.data = std::string(24, 'x') + std::string(8, '\0') + std::string(34, 'y');
  return file;
}

// For tests of names, sizes and metadata: the bytes behind the views are gone when it returns.
absl::StatusOr<GgufContents> parse(const GgufFile& file) {
  return parse_gguf(as_bytes(file.bytes()), "model.gguf");
}

std::string error_of(std::string_view bytes) {
  const auto parsed = parse_gguf(as_bytes(bytes), "model.gguf");
  if (parsed.ok()) return "(accepted)";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(Gguf, ReadsTensorsInPlaceWithTheOutermostDimensionFirst) {
  const std::string bytes = small_file().bytes();
  const auto parsed = parse_gguf(as_bytes(bytes), "model.gguf");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 2u);
  const TensorView& a = parsed->tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, base::DType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_EQ(a.bytes.size(), 24u);
  EXPECT_EQ(a.bytes[0], std::byte{'x'});
  const TensorView& b = parsed->tensors[1];
  EXPECT_EQ(b.dtype, base::DType::kQ8_0);
  EXPECT_EQ(b.bytes.size(), 34u);
  EXPECT_EQ(b.bytes.front(), std::byte{'y'});
  EXPECT_EQ(reinterpret_cast<const char*>(&b.bytes.back()), bytes.data() + bytes.size() - 1);
}

TEST(Gguf, ReadsTensorsOfEverySupportedType) {
  struct Case {
    std::uint32_t type;
    base::DType dtype;
    std::size_t bytes_of_64;
  };
  constexpr std::uint32_t kBF16 = 30;
  constexpr std::uint32_t kQ4_0 = 2;
  for (const Case& c : {Case{kF32, base::DType::kF32, 256}, Case{kF16, base::DType::kF16, 128},
                        Case{kBF16, base::DType::kBF16, 128}, Case{kQ8_0, base::DType::kQ8_0, 68},
                        Case{kQ4_0, base::DType::kQ4_0, 36}, Case{kQ4_1, base::DType::kQ4_1, 40}}) {
    GgufFile file;
    file.tensors = {{"t", {64}, c.type, 0}};
    file.data = std::string(c.bytes_of_64, 'z');
    const auto parsed = parse(file);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->tensors[0].dtype, c.dtype);
    EXPECT_EQ(parsed->tensors[0].bytes.size(), c.bytes_of_64);
    file.data.pop_back();
    EXPECT_FALSE(parse(file).ok()) << c.type;
  }
}

TEST(Gguf, ReadsMetadataOfEveryType) {
  GgufFile file;
  file.pairs = {
      pair<std::uint8_t>("u8", GgufTypes::kU8, 200),
      pair<std::int8_t>("i8", GgufTypes::kI8, -5),
      pair<std::uint16_t>("u16", GgufTypes::kU16, 60000),
      pair<std::int16_t>("i16", GgufTypes::kI16, -300),
      pair<std::uint32_t>("u32", GgufTypes::kU32, 4000000000u),
      pair<std::int32_t>("i32", GgufTypes::kI32, -7),
      pair<std::uint64_t>("u64", GgufTypes::kU64, std::numeric_limits<std::int64_t>::max()),
      pair<std::int64_t>("i64", GgufTypes::kI64, std::numeric_limits<std::int64_t>::min()),
      pair<float>("f32", GgufTypes::kF32, 0.5f),
      pair<double>("f64", GgufTypes::kF64, 1e300),
      pair<std::uint8_t>("bool", GgufTypes::kBool, 1),
      string_pair("string", "h\xc3\xa9llo")};
  const auto parsed = parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Metadata& metadata = parsed->metadata;
  EXPECT_EQ(*metadata.get_int("u8"), 200);
  EXPECT_EQ(*metadata.get_int("i8"), -5);
  EXPECT_EQ(*metadata.get_int("u16"), 60000);
  EXPECT_EQ(*metadata.get_int("i16"), -300);
  EXPECT_EQ(*metadata.get_int("u32"), 4000000000);
  EXPECT_EQ(*metadata.get_int("i32"), -7);
  EXPECT_EQ(*metadata.get_int("u64"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(*metadata.get_int("i64"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(*metadata.get_double("f32"), 0.5);
  EXPECT_EQ(*metadata.get_double("f64"), 1e300);
  EXPECT_EQ(*metadata.get_bool("bool"), true);
  EXPECT_EQ(*metadata.get_string("string"), "h\xc3\xa9llo");
}

TEST(Gguf, ReadsArraysAsHomogeneousLists) {
  const ByteWriter words = ByteWriter().gguf_string("one").gguf_string("");
  GgufFile file;
  file.pairs = {array_pair("words", GgufTypes::kString, 2, words.bytes()),
                array_pair("ints", GgufTypes::kI16, 2,
                           ByteWriter().put<std::int16_t>(-1).put<std::int16_t>(9).bytes()),
                array_pair("reals", GgufTypes::kF32, 1, ByteWriter().put(0.25f).bytes()),
                array_pair("flags", GgufTypes::kBool, 2, std::string("\1\0", 2)),
                array_pair("none", GgufTypes::kI32, 0, "")};
  const auto parsed = parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(**parsed->metadata.get_strings("words"), ElementsAre("one", ""));
  EXPECT_THAT(**parsed->metadata.get_ints("ints"), ElementsAre(-1, 9));
  EXPECT_THAT(std::get<std::vector<double>>(*parsed->metadata.find("reals")), ElementsAre(0.25));
  EXPECT_THAT(**parsed->metadata.get_ints("flags"), ElementsAre(1, 0));
  EXPECT_TRUE((*parsed->metadata.get_strings("none"))->empty());
  EXPECT_TRUE((*parsed->metadata.get_ints("none"))->empty());
}

TEST(Gguf, HonoursTheAlignmentOfTheFile) {
  GgufFile file;
  file.alignment = 128;
  file.pairs = {pair<std::uint32_t>("general.alignment", GgufTypes::kU32, 128)};
  file.tensors = {{"a", {1}, kF32, 128}};
  file.data = std::string(128, '\0') + "abcd";
  const std::string bytes = file.bytes();
  const auto parsed = parse_gguf(as_bytes(bytes), "model.gguf");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->tensors[0].bytes[0], std::byte{'a'});
}

TEST(Gguf, AcceptsScalarsVersionTwoAndFilesWithoutTensors) {
  GgufFile scalar;
  scalar.version = 2;
  scalar.tensors = {{"s", {}, kF32, 0}};
  scalar.data = "abcd";
  const auto parsed = parse(scalar);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->tensors[0].shape.empty());
  EXPECT_TRUE(parse(GgufFile{}).ok());
}

TEST(Gguf, TruncationAtEveryByteIsRefused) {
  GgufFile file = small_file();
  file.pairs.push_back(
      array_pair("words", GgufTypes::kString, 1, ByteWriter().gguf_string("hi").bytes()));
  file.pairs.push_back(pair<double>("f64", GgufTypes::kF64, 1.0));
  file.pairs.push_back(pair<std::uint8_t>("flag", GgufTypes::kBool, 0));
  const std::string whole = file.bytes();
  ASSERT_EQ(error_of(whole), "(accepted)");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of its own size, so that a sanitizer sees a read behind the end.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(error_of(std::string_view(part.data(), part.size())), HasSubstr("model.gguf: "));
    EXPECT_NE(error_of(std::string_view(part.data(), part.size())), "(accepted)") << size;
  }
}

TEST(Gguf, EveryFlippedByteIsReadOrRefusedWithoutHarm) {
  const std::string whole = small_file().bytes();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned char mask : {0x01, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ mask);
      const auto parsed = parse_gguf(as_bytes(changed), "model.gguf");
      if (!parsed.ok()) continue;
      for (const TensorView& tensor : parsed->tensors) {
        ASSERT_GE(reinterpret_cast<const char*>(tensor.bytes.data()), changed.data());
        ASSERT_LE(reinterpret_cast<const char*>(tensor.bytes.data() + tensor.bytes.size()),
                  changed.data() + changed.size());
      }
    }
  }
}

struct Corruption {
  const char* name;
  std::function<void(GgufFile&)> apply;
  std::vector<std::string> message_parts;
};

void PrintTo(const Corruption& corruption, std::ostream* out) { *out << corruption.name; }

class GgufCorruption : public ::testing::TestWithParam<Corruption> {};

TEST_P(GgufCorruption, IsRefusedWithItsReason) {
  GgufFile file = small_file();
  GetParam().apply(file);
  const std::string message = error_of(file.bytes());
  EXPECT_THAT(message, HasSubstr("model.gguf: "));
  for (const std::string& part : GetParam().message_parts) EXPECT_THAT(message, HasSubstr(part));
}

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

void add_pair(GgufFile& file, std::string bytes) { file.pairs.push_back(std::move(bytes)); }

const Corruption kHeaderCorruptions[] = {
    {"Magic", [](GgufFile& f) { f.magic = "GGML"; }, {"magic"}},
    {"VersionOne", [](GgufFile& f) { f.version = 1; }, {"version 1"}},
    {"VersionFour", [](GgufFile& f) { f.version = 4; }, {"version 4"}},
    {"BigEndian", [](GgufFile& f) { f.version = 0x03000000; }, {"big-endian"}},
    {"LyingTensorCount", [](GgufFile& f) { f.extra_tensors = 1u << 30; }, {"tensors", "truncated"}},
    {"LargestTensorCount", [](GgufFile& f) { f.extra_tensors = kHuge - 2; }, {"tensors"}},
    {"LargestPairCount", [](GgufFile& f) { f.extra_pairs = kHuge - 2; }, {"metadata pairs"}},
    {"OneTensorTooMany", [](GgufFile& f) { f.extra_tensors = 1; }, {"tensor 2"}},
    {"OnePairTooMany", [](GgufFile& f) { f.extra_pairs = 1; }, {"model.gguf"}},
    {"SplitModel",
     [](GgufFile& f) { add_pair(f, pair<std::uint16_t>("split.count", GgufTypes::kU16, 3)); },
     {"3 parts"}},
};

const Corruption kMetadataCorruptions[] = {
    {"DuplicateKey",
     [](GgufFile& f) { add_pair(f, string_pair("general.architecture", "other")); },
     {"'general.architecture'", "twice"}},
    {"EmptyKey", [](GgufFile& f) { add_pair(f, string_pair("", "x")); }, {"pair 2", "0 bytes"}},
    {"KeyNotUtf8", [](GgufFile& f) { add_pair(f, string_pair("k\xff", "x")); }, {"UTF-8", "\\xff"}},
    {"KeyTooLong",
     [](GgufFile& f) { add_pair(f, string_pair(std::string(65536, 'k'), "x")); },
     {"65536 bytes"}},
    {"ValueNotUtf8",
     [](GgufFile& f) { add_pair(f, string_pair("k", "\xed\xa0\x80")); },
     {"'k'", "UTF-8"}},
    {"UnknownType",
     [](GgufFile& f) { add_pair(f, raw_pair("k", 13, "0000")); },
     {"'k'", "type 13"}},
    {"UnsignedTooLarge",
     [](GgufFile& f) { add_pair(f, pair<std::uint64_t>("k", GgufTypes::kU64, 1ull << 63)); },
     {"'k'", "9223372036854775808"}},
    {"BooleanTwo",
     [](GgufFile& f) { add_pair(f, pair<std::uint8_t>("k", GgufTypes::kBool, 2)); },
     {"'k'", "boolean byte 2"}},
    {"LyingStringLength",
     [](GgufFile& f) {
       add_pair(f, raw_pair("k", GgufTypes::kString, ByteWriter().put(kHuge).bytes()));
     },
     {"'k'", "past the end"}},
    {"LyingArrayCount",
     [](GgufFile& f) { add_pair(f, array_pair("k", GgufTypes::kU8, kHuge, "")); },
     {"'k'", "18446744073709551615 elements"}},
    {"LyingStringArrayCount",
     [](GgufFile& f) { add_pair(f, array_pair("k", GgufTypes::kString, 1u << 28, "")); },
     {"'k'", "268435456 elements"}},
    {"TooManyElements",
     [](GgufFile& f) {
       add_pair(f,
                array_pair("k", GgufTypes::kU8, (1u << 24) + 1, std::string((1u << 24) + 1, 'x')));
     },
     {"'k'", "16777216"}},
    {"BadElement",
     [](GgufFile& f) {
       add_pair(f, array_pair("k", GgufTypes::kString, 2,
                              ByteWriter().gguf_string("ok").gguf_string("\xc3").bytes()));
     },
     {"'k'", "UTF-8", "element 1 of 2"}},
    {"ArrayOfArrays",
     [](GgufFile& f) {
       add_pair(f, array_pair("k", GgufTypes::kArray, 1, array_pair("", GgufTypes::kU8, 1, "x")));
     },
     {"'k'", "array of arrays"}},
    {"ArrayOfUnknownType",
     [](GgufFile& f) { add_pair(f, array_pair("k", 99, 1, "xxxxxxxx")); },
     {"'k'", "type 99"}},
    {"AlignmentZero",
     [](GgufFile& f) { add_pair(f, pair<std::uint32_t>("general.alignment", GgufTypes::kU32, 0)); },
     {"general.alignment 0"}},
    {"AlignmentFour",
     [](GgufFile& f) { add_pair(f, pair<std::uint32_t>("general.alignment", GgufTypes::kU32, 4)); },
     {"general.alignment 4"}},
    {"AlignmentFortyEight",
     [](GgufFile& f) {
       add_pair(f, pair<std::uint32_t>("general.alignment", GgufTypes::kU32, 48));
     },
     {"general.alignment 48"}},
    {"AlignmentHuge",
     [](GgufFile& f) {
       add_pair(f, pair<std::uint32_t>("general.alignment", GgufTypes::kU32, 1u << 31));
     },
     {"general.alignment 2147483648"}},
    {"AlignmentText",
     [](GgufFile& f) { add_pair(f, string_pair("general.alignment", "32")); },
     {"'general.alignment'", "an integer", "a string"}},
};

const Corruption kTensorCorruptions[] = {
    {"DuplicateName", [](GgufFile& f) { f.tensors[1].name = "a"; }, {"tensor 'a' twice"}},
    {"EmptyName", [](GgufFile& f) { f.tensors[1].name = ""; }, {"tensor 1", "0 bytes"}},
    {"LongName", [](GgufFile& f) { f.tensors[1].name = std::string(65, 'n'); }, {"tensor 1", "65"}},
    {"NameNotUtf8", [](GgufFile& f) { f.tensors[1].name = "\xc0\x80"; }, {"tensor 1", "UTF-8"}},
    {"FiveDimensions",
     [](GgufFile& f) {
       f.tensors[0].dims = {1, 1, 1, 1, 6};
     },
     {"'a'", "5 dim"}},
    {"ZeroDimension",
     [](GgufFile& f) {
       f.tensors[0].dims = {0, 6};
     },
     {"'a'", "dimension 0"}},
    {"DimensionAboveInt64",
     [](GgufFile& f) { f.tensors[0].dims = {1ull << 63}; },
     {"'a'", "9223372036854775808"}},
    {"ProductOverflow",
     [](GgufFile& f) {
       f.tensors[0].dims = {1ull << 32, 1ull << 32};
     },
     {"'a'", "overflows"}},
    {"ProductWrapsToSix",
     // (2^63 + 3) * 2 is 6 modulo 2^64.
     [](GgufFile& f) {
       f.tensors[0].dims = {(1ull << 63) - 1, (1ull << 63) - 1, 6};
     },
     {"'a'", "overflows"}},
    {"BytesOverflow", [](GgufFile& f) { f.tensors[0].dims = {1ull << 62}; }, {"'a'", "overflows"}},
    {"KQuantType", [](GgufFile& f) { f.tensors[1].type = 14; }, {"'b'", "14", "Q6_K", "Q8_0"}},
    {"RemovedType", [](GgufFile& f) { f.tensors[1].type = 4; }, {"'b'", "4", "unknown"}},
    {"UnknownType", [](GgufFile& f) { f.tensors[1].type = 4711; }, {"'b'", "4711", "unknown"}},
    {"PartialBlock",
     [](GgufFile& f) {
       f.tensors[1].dims = {16, 2};
     },
     {"'b'", "16", "of 32"}},
    {"QuantisedScalar", [](GgufFile& f) { f.tensors[1].dims = {}; }, {"'b'", "of 32"}},
    {"MisalignedOffset",
     [](GgufFile& f) { f.tensors[1].offset = 31; },
     {"'b'", "31", "alignment 32"}},
    {"OffsetBehindTheEnd",
     [](GgufFile& f) { f.tensors[1].offset = 96; },
     {"'b'", "96", "truncated"}},
    {"LargestOffset", [](GgufFile& f) { f.tensors[1].offset = kHuge - 31; }, {"'b'", "truncated"}},
    {"ReachesBehindTheEnd",
     [](GgufFile& f) {
       f.tensors[1].dims = {32, 2};
     },
     {"'b'", "68 bytes"}},
    {"Overlap", [](GgufFile& f) { f.tensors[1].offset = 0; }, {"overlaps"}},
    {"PartialOverlap",
     [](GgufFile& f) {
       f.tensors[0].dims = {3, 3};
     },
     {"'b'", "overlaps", "'a'"}},
};

std::string corruption_name(const ::testing::TestParamInfo<Corruption>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Header, GgufCorruption, ::testing::ValuesIn(kHeaderCorruptions),
                         corruption_name);
INSTANTIATE_TEST_SUITE_P(Values, GgufCorruption, ::testing::ValuesIn(kMetadataCorruptions),
                         corruption_name);
INSTANTIATE_TEST_SUITE_P(Tensors, GgufCorruption, ::testing::ValuesIn(kTensorCorruptions),
                         corruption_name);

}  // namespace
}  // namespace hisparse::format
