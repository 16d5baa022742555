// Functions on text: suggestions for misspelt words, decimals, UTF-8, shortened text and lists of alternatives.
#include "base/text.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.h"

TEST_CASE("nearest_word() returns the intended word for a typing error, and \"\" for an unrelated word") {
  CHECK(mh::nearest_word("leanring_rate", {"learning_rate", "length"}) == "learning_rate");
  CHECK(mh::nearest_word("xyz", {"learning_rate", "length"}) == "");
  CHECK(mh::did_you_mean("lrr", {"lr", "wd"}) == "did you mean 'lr'?");
}

TEST_CASE("fixed_decimal() prints the requested number of decimals for any magnitude") {
  CHECK(mh::fixed_decimal(2.71828, 2) == "2.72");
  CHECK(mh::fixed_decimal(-2, 3) == "-2.000");
  CHECK(mh::fixed_decimal(1e300, 4).size() == 301 + 5);
}

TEST_CASE("NaN is printed without its sign") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double value : {nan, std::copysign(nan, -1.0)}) {
    CHECK(mh::fixed_decimal(value, 2) == "nan");
    CHECK(mh::shortest_decimal(value) == "nan");
    CHECK(mh::str("loss ", value, static_cast<float>(value)) == "loss nannan");
  }
}

TEST_CASE("find_invalid_utf8() returns the offset of the first invalid sequence, or npos for valid UTF-8") {
  CHECK(mh::find_invalid_utf8("plain") == std::string::npos);
  CHECK(mh::find_invalid_utf8("gr\xc3\xbc\xc3\x9f") == std::string::npos);
  CHECK(mh::find_invalid_utf8("ab\xff") == 2);
  CHECK(mh::find_invalid_utf8("a\xc0\x80") == 1);          // overlong encoding
  CHECK(mh::find_invalid_utf8("a\xed\xa0\x80") == 1);      // surrogate
  CHECK(mh::find_invalid_utf8("a\xf4\x90\x80\x80") == 1);  // above U+10FFFF
  CHECK(mh::find_invalid_utf8("a\xe2\x82") == 1);          // truncated sequence
}

TEST_CASE("shorten() cuts a long text between characters and leaves a short one unchanged") {
  CHECK(mh::shorten("abc", 3) == "abc");
  CHECK(mh::shorten("abcd", 3) == "abc…");
  CHECK(mh::shorten("a東京", 4) == "a東…");
  for (const size_t max_bytes : {1, 2, 3}) CHECK(mh::shorten("a東京", max_bytes) == "a…");
  CHECK(mh::shorten(std::string(9, '\x80'), 6) == std::string(3, '\x80') + "…");  // not UTF-8
  CHECK(mh::shorten("東", 0) == "…");
}

TEST_CASE("join_alternatives() separates the last alternative by 'or'") {
  CHECK(mh::join_alternatives({}).empty());
  CHECK(mh::join_alternatives({"a"}) == "a");
  CHECK(mh::join_alternatives({"a", "b"}) == "a or b");
  CHECK(mh::join_alternatives({"a", "b", "c"}) == "a, b or c");
}
