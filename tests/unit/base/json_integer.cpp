// integer_of() and its forms for lists and objects, which read JSON integers and refuse other types and values out of
// range.
#include "base/json_integer.h"

#include <catch2/catch.hpp>

using namespace mh;
using nlohmann::json;

TEST_CASE("integer_of() returns integers within the range of the type", "[base]") {
  CHECK(integer_of<int>(json::parse("-2147483648")) == INT32_MIN);
  CHECK(integer_of<int64_t>(json::parse("9223372036854775807")) == INT64_MAX);
  CHECK(integer_of<int64_t>(json::parse("-9223372036854775808")) == INT64_MIN);
  CHECK(integer_of<uint64_t>(json::parse("18446744073709551615")) == UINT64_MAX);
  CHECK(integers_of<int64_t>(json::parse("[1, -2]")) == std::vector<int64_t>{1, -2});
  CHECK(integers_by_key<uint64_t>(json::parse(R"({"a": 1})")) == std::map<std::string, uint64_t>{{"a", 1}});
}

TEST_CASE("integer_of() refuses fractions, other types and integers outside the range", "[base]") {
  for (const char* text : {"1.0", "1e30", "true", "null", "\"1\"", "[1]", "9223372036854775808"})
    CHECK_THROWS_AS(integer_of<int64_t>(json::parse(text)), json::type_error);
  for (const char* text : {"-1", "1e30", "18446744073709551616"})
    CHECK_THROWS_AS(integer_of<uint64_t>(json::parse(text)), json::type_error);
  CHECK_THROWS_AS(integer_of<int>(json::parse("2147483648")), json::type_error);
  CHECK_THROWS_AS(integers_of<int64_t>(json::parse("1")), json::type_error);
  CHECK_THROWS_AS(integers_by_key<int64_t>(json::parse("[1]")), json::type_error);
  CHECK_THROWS_WITH(integer_of<uint64_t>(json::parse("1e+30")), Catch::Contains("an integer in range, but is 1e+30"));
}
