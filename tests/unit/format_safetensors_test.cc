#include "format/safetensors.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/format_writers.h"

namespace hisparse::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::as_bytes;
using testing_support::ByteWriter;
using testing_support::safetensors_file;

// "w" comes first in the data and last in the header.
constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt"},)"
    R"("b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
    R"("w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}   )";
constexpr std::string_view kData = "wwwwwwwwwwwwbbbb";

std::string error_of(std::string_view bytes) {
  const auto parsed = parse_safetensors(as_bytes(bytes), "m.safetensors");
  if (parsed.ok()) return "(accepted)";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(Safetensors, ReadsTensorsInPlaceInDataOrder) {
  const std::string bytes = safetensors_file(kHeader, kData);
  const auto parsed = parse_safetensors(as_bytes(bytes), "m.safetensors");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->size(), 2u);
  EXPECT_EQ((*parsed)[0].name, "w");
  EXPECT_EQ((*parsed)[0].dtype, base::DType::kBF16);
  EXPECT_THAT((*parsed)[0].shape, ElementsAre(2, 3));
  EXPECT_EQ((*parsed)[0].bytes.size(), 12u);
  EXPECT_EQ((*parsed)[1].name, "b");
  EXPECT_TRUE((*parsed)[1].shape.empty());
  EXPECT_EQ((*parsed)[1].bytes[0], std::byte{'b'});
}

TEST(Safetensors, AcceptsEmptyTensorsAndEmptyFiles) {
  EXPECT_EQ(error_of(safetensors_file("{}", "")), "(accepted)");
  const std::string bytes =
      safetensors_file(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                       R"("none":{"dtype":"F16","shape":[0,7],"data_offsets":[2,2]},)"
                       R"("first":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}})",
                       "aa");
  const auto parsed = parse_safetensors(as_bytes(bytes), "m.safetensors");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)[0].name, "first");
  EXPECT_TRUE((*parsed)[0].bytes.empty());
}

TEST(Safetensors, TruncationAtEveryByteIsRefused) {
  const std::string whole = safetensors_file(kHeader, kData);
  ASSERT_EQ(error_of(whole), "(accepted)");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(error_of(std::string_view(part.data(), part.size())), HasSubstr("m.safetensors: "))
        << size;
  }
}

struct Corruption {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  std::vector<std::string> message_parts;
};

void PrintTo(const Corruption& corruption, std::ostream* out) { *out << corruption.name; }

class SafetensorsCorruption : public ::testing::TestWithParam<Corruption> {};

TEST_P(SafetensorsCorruption, IsRefusedWithItsReason) {
  const Corruption& corruption = GetParam();
  const std::string message =
      error_of(safetensors_file(corruption.header, std::string(corruption.data_bytes, 'x')));
  EXPECT_THAT(message, HasSubstr("m.safetensors: "));
  for (const std::string& part : corruption.message_parts) EXPECT_THAT(message, HasSubstr(part));
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

const Corruption kCorruptions[] = {
    {"NotAnObject", "[1]", 0, {"JSON object"}},
    {"LeadingSpace", " {}", 0, {"JSON object"}},
    {"BadJson", R"({"t":})", 0, {"JSON", "byte"}},
    {"TextBehindTheHeader", "{}{}", 0, {"JSON"}},
    {"NulBehindTheHeader", std::string("{}\0{}", 5), 0, {"NUL"}},
    {"NotUtf8", "{\"\xff\":{}}", 0, {"UTF-8"}},
    {"DuplicateTensor",
     R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8,
     {"'t'", "twice"}},
    {"DuplicateMember",
     R"({"t":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})",
     4,
     {"'dtype'", "twice"}},
    {"DeepNesting", "{\"t\":" + std::string(100000, '['), 0, {"nested"}},
    {"EntryNotAnObject", R"({"t":3})", 0, {"'t'"}},
    {"UnknownMember",
     R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":1}})",
     4,
     {"'t'", "'x'"}},
    {"MetadataNotStrings", R"({"__metadata__":{"a":1}})", 0, {"__metadata__"}},
    {"NoDtype", R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4, {"'t'", "dtype"}},
    {"UnsupportedDtype", entry("F8_E4M3", "[4]", "[0,4]"), 4, {"'t'", "'F8_E4M3'", "BF16"}},
    {"NoShape", R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"'t'", "shape"}},
    {"NegativeDimension", entry("F32", "[-1]", "[0,4]"), 4, {"'t'", "shape"}},
    {"FractionalDimension", entry("F32", "[1.0]", "[0,4]"), 4, {"'t'", "shape"}},
    {"HugeDimension", entry("F32", "[18446744073709551615]", "[0,4]"), 4, {"18446744073709551615"}},
    {"HugerDimension",
     entry("F32", "[36893488147419103233]", "[0,4]"),
     4,
     {"36893488147419103233"}},
    {"ProductOverflow", entry("F32", "[4294967296,4294967296]", "[0,4]"), 4, {"'t'", "overflows"}},
    {"BytesOverflow", entry("F32", "[4611686018427387905]", "[0,4]"), 4, {"'t'", "overflows"}},
    {"ThreeOffsets", entry("F32", "[1]", "[0,4,8]"), 8, {"'t'", "two numbers"}},
    {"NegativeOffset", entry("F32", "[1]", "[-4,0]"), 4, {"'t'", "data_offsets"}},
    {"EndsBeforeItBegins", entry("F32", "[1]", "[4,0]"), 4, {"'t'", "ends before"}},
    {"EndsBehindTheFile", entry("F32", "[2]", "[0,8]"), 4, {"'t'", "truncated"}},
    {"TooFewBytes", entry("F32", "[2]", "[0,4]"), 4, {"'t'", "need 8"}},
    {"TooManyBytes", entry("F16", "[1]", "[0,4]"), 4, {"'t'", "need 2"}},
    {"HoleAtTheStart", entry("F32", "[1]", "[4,8]"), 8, {"'t'", "hole"}},
    {"BytesBehindTheLast", entry("F32", "[1]", "[0,4]"), 6, {"2 bytes behind"}},
    {"Overlap",
     R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("u":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
     6,
     {"'u'", "overlap"}},
    {"SameBytesTwice",
     R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("u":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     4,
     {"'u'", "overlap"}},
};

INSTANTIATE_TEST_SUITE_P(All, SafetensorsCorruption, ::testing::ValuesIn(kCorruptions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, HeaderLengthsThatLieAreRefused) {
  const auto with_length = [](std::uint64_t length) {
    return ByteWriter().put(length).raw("{}").bytes();
  };
  EXPECT_EQ(error_of(with_length(2)), "(accepted)");
  EXPECT_THAT(error_of(with_length(3)), HasSubstr("truncated"));
  EXPECT_THAT(error_of(with_length(100'000'000)), HasSubstr("truncated"));
  EXPECT_THAT(error_of(with_length(100'000'001)), HasSubstr("the format allows 100000000"));
  EXPECT_THAT(error_of(with_length(~0ull)), HasSubstr("the format allows 100000000"));
  EXPECT_THAT(error_of(with_length(0)), HasSubstr("JSON object"));
}

}  // namespace
}  // namespace hisparse::format
