// JSON-RPC 2.0 between `braid` and its nodes: one object a line, requests without batches or
// notifications. Pure functions; any thread. Bytes come from a socket: everything is bounded and
// checked here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace braid::cli {

inline constexpr size_t kRpcLineMax = 4 << 20;     // bytes of a call
inline constexpr size_t kRpcAnswerMax = 64 << 20;  // of an answer: a device's state has some 4 KiB
inline constexpr int kRpcDepthMax = 32;            // nesting of a message

struct RpcCall {
  int64_t id = 0;
  std::string method;
  std::string params;  // a JSON object, as text
};

/// kInvalid: a text in `params` is not UTF-8.
base::Result<std::string> encode_call(int64_t id, std::string_view method,
                                      const nlohmann::json& params);
base::Result<RpcCall> parse_call(std::string_view line);

std::string encode_result(int64_t id, nlohmann::json result);
std::string encode_error(int64_t id, const base::Error& error);
/// The result, or the error that the node answered (its code and words are kept), to this call or,
/// with id 0, to none in particular: a node that refuses a caller does so before it reads the call.
base::Result<nlohmann::json> parse_answer(std::string_view line, int64_t id);

/// Parses text with the bounds above; kProtocol says where it goes wrong.
base::Result<nlohmann::json> parse_json(std::string_view text, size_t bytes_max = kRpcLineMax);

}  // namespace braid::cli
