#include "format/gguf_cursor.h"

#include "gtest/gtest.h"
#include "tests/unit/format_writers.h"

namespace hisparse::format {
namespace {

using testing_support::as_bytes;
using testing_support::ByteWriter;

TEST(GgufCursor, ValueOneByteTooLongIsNotReadAndMovesNothing) {
  GgufCursor cursor(as_bytes("abc"));
  EXPECT_FALSE(cursor.read<std::uint32_t>().has_value());
  EXPECT_EQ(cursor.position(), 0u);
  EXPECT_EQ(cursor.remaining(), 3u);
  EXPECT_EQ(cursor.read<std::uint16_t>(), std::uint16_t{'b' << 8 | 'a'});
  EXPECT_EQ(cursor.read<char>(), 'c');
  EXPECT_FALSE(cursor.read<char>().has_value());
  EXPECT_EQ(cursor.remaining(), 0u);
}

TEST(GgufCursor, StringOneByteTooLongIsNotReadAndMovesNothing) {
  const std::string exact = ByteWriter().gguf_string("four").bytes();
  GgufCursor whole(as_bytes(exact));
  EXPECT_EQ(whole.read_string(), "four");
  EXPECT_EQ(whole.remaining(), 0u);
  GgufCursor cut(as_bytes(std::string_view(exact).substr(0, exact.size() - 1)));
  EXPECT_FALSE(cut.read_string().has_value());
  EXPECT_EQ(cut.position(), 0u);
  GgufCursor without_length(as_bytes("1234567"));
  EXPECT_FALSE(without_length.read_string().has_value());
}

}  // namespace
}  // namespace hisparse::format
