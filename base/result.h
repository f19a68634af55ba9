// Result<T>: a value, or an Error with a code and a sentence for people. For control paths; data
// paths carry a bare Errc.
//
//   Result<std::unique_ptr<File>> f = host.files().open(...);
//   if (!f.ok()) return f.error().with("while opening export {}", name);
//   BRAID_TRY(auto file, host.files().open(...));        // returns the error from the enclosing
//   function BRAID_CO_TRY(auto file, co_await open_later(...));   // the same in a coroutine
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.h"

namespace braid::base {

/// Why something failed: a code to decide by, and a sentence that names the thing, the value and
/// what would be right.
class [[nodiscard]] Error {
 public:
  Error(Errc code, std::string message) : code_(code), message_(std::move(message)) {}

  Errc code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same error with the outer circumstances put in front: "<context>: <message>".
  template <typename... Args>
  Error with(fmt::format_string<Args...> format, Args&&... args) const {
    return Error(code_, fmt::format(format, std::forward<Args>(args)...) + ": " + message_);
  }

 private:
  Errc code_;
  std::string message_;
};

template <typename... Args>
Error make_error(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// From an errno value: "<what>: <strerror>".
Error sys_error(int sys_errno, std::string_view what);

/// Stops the process: a bug in Braid itself, in all builds. Never reachable from a peer's, disk's
/// or user's bytes.
[[noreturn]] void panic(const char* file, int line, const char* what);

#define BRAID_ASSERT(condition)                      \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? void()                                      \
       : ::braid::base::panic(__FILE__, __LINE__, #condition))

template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return checked(); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T&& value() && { return std::move(checked()); }
  T& operator*() & { return checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }

  const Error& error() const {
    BRAID_ASSERT(!ok());
    return *std::get_if<1>(&state_);
  }
  Errc code() const { return ok() ? Errc::kOk : error().code(); }

 private:
  T& checked() {
    BRAID_ASSERT(ok());
    return *std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    BRAID_ASSERT(!ok());
    return *error_;
  }
  Errc code() const { return ok() ? Errc::kOk : error_->code(); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;
inline Status ok_status() {
  return {};
}

}  // namespace braid::base

#define BRAID_CONCAT_INNER(a, b) a##b
#define BRAID_CONCAT(a, b) BRAID_CONCAT_INNER(a, b)
#define BRAID_TRY_IMPL(result, declaration, expression, give_back) \
  auto result = (expression);                                      \
  if (!result.ok()) give_back result.error();                      \
  declaration = std::move(result).value()
#define BRAID_CHECK_IMPL(result, expression, give_back) \
  if (auto result = (expression); !result.ok()) give_back result.error()
/// `BRAID_TRY(auto x, f());` binds the value, or returns the error.
#define BRAID_TRY(declaration, ...) \
  BRAID_TRY_IMPL(BRAID_CONCAT(try_, __LINE__), declaration, (__VA_ARGS__), return )
#define BRAID_CO_TRY(declaration, ...) \
  BRAID_TRY_IMPL(BRAID_CONCAT(try_, __LINE__), declaration, (__VA_ARGS__), co_return )
/// `BRAID_CHECK(f());` for Status: returns the error if there is one.
#define BRAID_CHECK(...) BRAID_CHECK_IMPL(BRAID_CONCAT(check_, __LINE__), (__VA_ARGS__), return )
#define BRAID_CO_CHECK(...) \
  BRAID_CHECK_IMPL(BRAID_CONCAT(check_, __LINE__), (__VA_ARGS__), co_return )
