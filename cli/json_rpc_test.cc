// Calls and answers survive the trip; what is malformed is refused, never thrown.
#include "cli/json_rpc.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace braid::cli {
namespace {

using nlohmann::json;

TEST(JsonRpc, a_call_and_its_answers_survive_the_trip) {
  auto call = parse_call(*encode_call(7, "map", {{"target", "h/x"}}));
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->id, 7);
  EXPECT_EQ(call->method, "map");
  EXPECT_EQ(json::parse(call->params)["target"], "h/x");

  auto answer = parse_answer(encode_result(7, {{"device", "/dev/loop0"}}), 7);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ((*answer)["device"], "/dev/loop0");

  auto failed = parse_answer(encode_error(7, base::Error(base::Errc::kBusy, "held by vm1")), 7);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.code(), base::Errc::kBusy);
  EXPECT_EQ(failed.error().message(), "held by vm1");
}

TEST(JsonRpc, an_answer_to_another_call_is_refused) {
  EXPECT_EQ(parse_answer(encode_result(7, json::object()), 8).code(), base::Errc::kProtocol);
}

TEST(JsonRpc, a_refusal_to_nobody_in_particular_is_ours) {
  EXPECT_EQ(parse_answer(encode_error(0, base::Error(base::Errc::kBusy, "full")), 7).code(),
            base::Errc::kBusy);
  EXPECT_EQ(parse_answer(encode_result(0, 5), 7).code(), base::Errc::kProtocol);
}

TEST(JsonRpc, codes_that_are_not_ours_stand_for_a_protocol_error) {
  for (const char* code :
       {"0", "-32000", "-32021", "-1", "9223372036854775807", "-9223372036854775808",
        "18446744073709551615", "18446744073709519615"}) {
    const std::string line =
        std::string(R"({"jsonrpc":"2.0","id":1,"error":{"message":"x","code":)") + code + "}}";
    EXPECT_EQ(parse_answer(line, 1).code(), base::Errc::kProtocol) << code;
  }
}

TEST(JsonRpc, malformed_calls_are_refused) {
  for (const char* line :
       {"", "{", "[]", "1", "null", "\"x\"", R"({"id":1,"method":"x"})",
        R"({"jsonrpc":"1.0","id":1,"method":"x"})", R"({"jsonrpc":"2.0","id":"a","method":"x"})",
        R"({"jsonrpc":"2.0","id":1.5,"method":"x"})", R"({"jsonrpc":"2.0","id":1,"method":5})",
        R"({"jsonrpc":"2.0","id":1,"method":"x","params":[1]})"})
    EXPECT_EQ(parse_call(line).code(), base::Errc::kProtocol) << line;
}

// Else the answer would have another id, and its caller would wait for his.
TEST(JsonRpc, an_id_that_no_answer_could_carry_is_refused) {
  for (const char* id : {"9223372036854775808", "18446744073709551615", "18446744073709551616"}) {
    const std::string head = std::string(R"({"jsonrpc":"2.0","id":)") + id;
    EXPECT_EQ(parse_call(head + R"(,"method":"x"})").code(), base::Errc::kProtocol) << id;
    EXPECT_EQ(parse_answer(head + R"(,"result":1})", -1).code(), base::Errc::kProtocol) << id;
  }
  for (const char* id : {"9223372036854775807", "-9223372036854775808"}) {
    auto call = parse_call(std::string(R"({"jsonrpc":"2.0","method":"x","id":)") + id + "}");
    ASSERT_TRUE(call.ok()) << id;
    EXPECT_EQ(std::to_string(call->id), id);
  }
}

TEST(JsonRpc, malformed_answers_are_refused) {
  for (const char* line :
       {"", "{}", R"({"jsonrpc":"2.0","id":1})", R"({"jsonrpc":"2.0","id":1,"error":5})",
        R"({"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"y"}})"})
    EXPECT_EQ(parse_answer(line, 1).code(), base::Errc::kProtocol) << line;
}

TEST(JsonRpc, nesting_and_size_are_bounded) {
  EXPECT_EQ(parse_json(std::string(100000, '[')).code(), base::Errc::kProtocol);
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  EXPECT_NE(parse_json(deep).error().message().find("nested"), std::string::npos);
  EXPECT_EQ(parse_json(std::string(kRpcLineMax + 1, ' ')).code(), base::Errc::kProtocol);
}

TEST(JsonRpc, bytes_that_are_not_text_do_not_throw) {
  EXPECT_FALSE(parse_call("\xff\xfe").ok());
  const std::string answer = encode_error(1, base::Error(base::Errc::kInvalid, "name \"\xff\""));
  EXPECT_FALSE(parse_answer(answer, 1).ok());
}

}  // namespace
}  // namespace braid::cli
