#include "cli/json_rpc.h"

#include <nlohmann/json.hpp>

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using nlohmann::json;

namespace {

// JSON-RPC reserves -32000..-32099 for servers: ours is the first of them less our own code.
constexpr int kErrorBase = -32000;
constexpr int kErrcLast = static_cast<int>(Errc::kDead);

/// From 2^63 on get<int64_t>() would make another number of it, without a word.
bool is_int64(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= INT64_MAX;
  return value.is_number_integer();
}

Result<json> parse_message(std::string_view line, size_t bytes_max) {
  BRAID_TRY(json message, parse_json(line, bytes_max));
  if (!message.is_object()) return Error(Errc::kProtocol, "a JSON-RPC message must be an object");
  const auto version = message.find("jsonrpc");
  if (version == message.end() || *version != "2.0")
    return Error(Errc::kProtocol, "a JSON-RPC message must say \"jsonrpc\": \"2.0\"");
  const auto id = message.find("id");
  if (id == message.end() || !is_int64(*id))
    return Error(Errc::kProtocol,
                 "a JSON-RPC message must have an integer \"id\" of 64 bits, signed");
  return message;
}

}  // namespace

Result<json> parse_json(std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max)
    return make_error(Errc::kProtocol, "JSON of {} bytes: at most {} are taken", text.size(),
                      bytes_max);
  bool too_deep = false;
  const json::parser_callback_t watch_depth = [&](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kRpcDepthMax;
    return !too_deep;
  };
  json parsed = json::parse(text, watch_depth, /*allow_exceptions=*/false);
  if (too_deep)
    return make_error(Errc::kProtocol, "JSON nested deeper than {} levels", kRpcDepthMax);
  if (parsed.is_discarded()) return Error(Errc::kProtocol, "not valid JSON");
  return parsed;
}

Result<std::string> encode_call(int64_t id, std::string_view method, const json& params) {
  const json call{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}};
  try {
    return call.dump();
  } catch (const json::type_error&) {  // thrown for nothing else
    return make_error(Errc::kInvalid, "{}: not all of it is UTF-8 text",
                      params.dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

Result<RpcCall> parse_call(std::string_view line) {
  BRAID_TRY(json message, parse_message(line, kRpcLineMax));
  const auto method = message.find("method");
  if (method == message.end() || !method->is_string())
    return Error(Errc::kProtocol, "a JSON-RPC call must have a string \"method\"");
  const auto params = message.find("params");
  if (params != message.end() && !params->is_object())
    return Error(Errc::kProtocol, "the \"params\" of a call must be an object");
  // Text that is not UTF-8 cannot be printed again: refuse it here, once.
  constexpr auto kReplaceBad = json::error_handler_t::replace;
  return RpcCall{message["id"].get<int64_t>(), method->get<std::string>(),
                 params == message.end() ? "{}" : params->dump(-1, ' ', false, kReplaceBad)};
}

std::string encode_result(int64_t id, json result) {
  json answer{{"jsonrpc", "2.0"}, {"id", id}};
  answer["result"] = std::move(result);  // some MiB of a node with many disks: no copy
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string encode_error(int64_t id, const Error& error) {
  const json body{{"code", kErrorBase - static_cast<int>(error.code())},
                  {"message", error.message()},
                  {"data", {{"kind", to_string(error.code())}}}};
  return json{{"jsonrpc", "2.0"}, {"id", id}, {"error", body}}.dump(-1, ' ', false,
                                                                    json::error_handler_t::replace);
}

Result<json> parse_answer(std::string_view line, int64_t id) {
  BRAID_TRY(json message, parse_message(line, kRpcAnswerMax));
  const auto error = message.find("error");
  if (message["id"] != id && !(message["id"] == 0 && error != message.end()))
    return make_error(Errc::kProtocol, "an answer to call {}, not to {}", message["id"].dump(), id);
  if (error != message.end()) {
    if (!error->is_object() || !error->contains("code") || !is_int64((*error)["code"]) ||
        !error->contains("message") || !(*error)["message"].is_string())
      return Error(Errc::kProtocol, "an error without \"code\" and \"message\"");
    const int64_t code = (*error)["code"].get<int64_t>();
    const bool ours = code < kErrorBase && code >= kErrorBase - kErrcLast;
    return Error(ours ? static_cast<Errc>(kErrorBase - code) : Errc::kProtocol,
                 (*error)["message"].get<std::string>());
  }
  if (!message.contains("result"))
    return Error(Errc::kProtocol, "an answer with neither \"result\" nor \"error\"");
  return std::move(message["result"]);
}

}  // namespace braid::cli
