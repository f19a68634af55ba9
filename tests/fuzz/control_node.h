// A node behind the control socket for fuzz targets, and what its answers must be. The socket, the
// parser and the types of parameters (node_params.h) ship; the methods are made up.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/control.h"
#include "cli/node_params.h"
#include "tests/fuzz/two_party.h"

namespace braid::fuzz {

using CallPtr = std::shared_ptr<cli::ControlCall>;

inline constexpr size_t kLargeBytes = 250'000;  // more than a socket holds
inline constexpr unsigned kCountMax = 8;
/// Said without its newline: it may not come.
inline constexpr const char* kUnended = R"({"jsonrpc":"2.0","id":1,"method":"unended"})";

/// Answers at once, or keeps the calls of "hold" until the game lets them go.
class ControlNode {
 public:
  ControlNode() : held_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    require(held_fd_ >= 0, "there is an eventfd");
  }
  ~ControlNode() { ::close(held_fd_); }
  ControlNode(const ControlNode&) = delete;
  ControlNode& operator=(const ControlNode&) = delete;

  /// On the server's thread.
  void take(CallPtr call) {
    const std::string& method = call->rpc().method;
    require(method != "unended", "a call without its end is not carried out");
    if (method == "drop") return;
    if (method != "hold") return call->answer(answer_of(call->rpc()));
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(call));
    const uint64_t one = 1;
    require(::write(held_fd_, &one, sizeof one) == sizeof one, "the game hears of it");
  }
  /// Readable when calls were kept since the last take_held().
  int held_fd() const { return held_fd_; }
  std::vector<CallPtr> take_held() {
    const std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!::read(held_fd_, &count, sizeof count);
    return std::exchange(held_, {});
  }
  static base::Result<nlohmann::json> answer_of(const cli::RpcCall& rpc) {
    const nlohmann::json params = nlohmann::json::parse(rpc.params);
    if (rpc.method == "echo") return nlohmann::json{{"params", params}};
    if (rpc.method == "typed") return typed(params);
    if (rpc.method == "hold") return nlohmann::json("held");
    if (rpc.method == "large") return nlohmann::json(std::string(kLargeBytes, 'x'));
    if (rpc.method == "too_long") return nlohmann::json(std::string(cli::kRpcLineMax, 'x'));
    return base::Error(base::Errc::kBusy, "no text: \xff\n");
  }

 private:
  static base::Result<nlohmann::json> typed(const nlohmann::json& params) {
    BRAID_TRY(const std::string name, cli::text_param(params, "name", "none"));
    BRAID_TRY(const unsigned count, cli::count_param(params, "count", 1, kCountMax));
    BRAID_TRY(const bool force, cli::bool_param(params, "force"));
    return nlohmann::json{{"name", name}, {"count", count}, {"force", force}};
  }

  const int held_fd_;
  std::mutex mutex_;
  std::vector<CallPtr> held_;
};

/// The deepest nesting of a text of JSON.
inline int nesting_of(const std::string& line) {
  int depth = 0, most = 0;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '{' || c == '[') most = std::max(most, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return most;
}

/// The call, if the line is one that the node must answer; written without the parser that ships.
inline std::optional<nlohmann::json> call_in(const std::string& line) {
  if (line.size() > cli::kRpcLineMax) return std::nullopt;
  nlohmann::json call = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  // No game comes near the limit from both sides: what it nests, it nests little or a lot.
  if (!call.is_object() || nesting_of(line) > 2 * cli::kRpcDepthMax) return std::nullopt;
  if (call.value("jsonrpc", nlohmann::json()) != "2.0") return std::nullopt;
  const nlohmann::json id = call.value("id", nlohmann::json());
  // A number from 0 on is an unsigned one.
  if (!id.is_number_integer()) return std::nullopt;
  if (id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (!call.value("method", nlohmann::json()).is_string()) return std::nullopt;
  if (!call.value("params", nlohmann::json::object()).is_object()) return std::nullopt;
  return call;
}

/// What "typed" must make of a parameter: its value, or nothing if its type is wrong.
inline std::optional<nlohmann::json> typed_value(const nlohmann::json& params, const char* key) {
  const std::string name = key;
  const auto found = params.find(key);
  if (found == params.end()) {
    if (name == "name") return "none";
    return name == "count" ? nlohmann::json(1) : nlohmann::json(false);
  }
  bool right = found->is_string();
  if (name == "force") right = found->is_boolean();
  if (name == "count") {
    right = found->is_number_unsigned() && found->get<uint64_t>() >= 1 &&
            found->get<uint64_t>() <= kCountMax;
  }
  return right ? std::optional(*found) : std::nullopt;
}

/// Is this error of that kind, in words?
inline void judge_error(const nlohmann::json& answer, base::Errc kind) {
  require(answer.contains("error") && !answer.contains("result"), "it is refused");
  const nlohmann::json& error = answer["error"];
  require(error.value("code", 0) == -32000 - static_cast<int>(kind), "with its code");
  require(!error.value("message", "").empty(), "in words");
}

/// `call`: what was asked; nothing: it was no call.
inline void judge_answer(const std::optional<nlohmann::json>& call, const std::string& line) {
  const nlohmann::json answer = nlohmann::json::parse(line, nullptr, false);
  require(answer.is_object() && answer.value("jsonrpc", "") == "2.0",
          "an answer is a line of JSON");
  if (!call.has_value()) {
    require(answer["id"] == 0, "what is no call has no id");
    return judge_error(answer, base::Errc::kProtocol);
  }
  require(answer["id"].dump() == call->at("id").dump(), "an answer has the id of its call");
  const std::string method = call->at("method");
  const nlohmann::json params = call->value("params", nlohmann::json::object());
  if (method == "drop") return judge_error(answer, base::Errc::kCanceled);
  if (method == "too_long") return judge_error(answer, base::Errc::kOutOfRange);
  if (method == "typed") {
    nlohmann::json want = nlohmann::json::object();
    for (const char* key : {"name", "count", "force"}) {
      const auto value = typed_value(params, key);
      if (!value.has_value()) return judge_error(answer, base::Errc::kInvalid);
      want[key] = *value;
    }
    return require(answer["result"] == want, "parameters are what they were");
  }
  if (method == "echo") return require(answer["result"]["params"] == params, "it is its answer");
  if (method == "hold") return require(answer["result"] == "held", "it is its answer");
  if (method == "large") {
    return require(answer["result"].get<std::string>().size() == kLargeBytes, "it comes whole");
  }
  judge_error(answer, base::Errc::kBusy);
}

}  // namespace braid::fuzz
