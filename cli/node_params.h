// The parameters of a control call, whose types are the caller's (private to cli/node*.cc).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace braid::cli {

/// A string member of the parameters; `fallback` if it is missing, kInvalid if it is no string.
inline base::Result<std::string> text_param(const nlohmann::json& params, const char* key,
                                            const char* fallback) {
  const auto found = params.find(key);
  if (found == params.end()) return std::string(fallback);
  if (!found->is_string())
    return base::make_error(base::Errc::kInvalid, "parameter \"{}\" must be a string", key);
  return found->get<std::string>();
}

/// A list of strings of the parameters; empty if it is missing, kInvalid if it is none.
inline base::Result<std::vector<std::string>> texts_param(const nlohmann::json& params,
                                                          const char* key) {
  std::vector<std::string> texts;
  const auto found = params.find(key);
  if (found == params.end()) return texts;
  const auto wrong = [&] {
    return base::make_error(base::Errc::kInvalid, "parameter \"{}\" must be a list of strings",
                            key);
  };
  if (!found->is_array()) return wrong();
  for (const nlohmann::json& one : *found) {
    if (!one.is_string()) return wrong();
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

/// A number of the parameters; `fallback` if it is missing, kInvalid unless it is one of 1 to
/// `most`.
inline base::Result<unsigned> count_param(const nlohmann::json& params, const char* key,
                                          unsigned fallback, unsigned most) {
  const auto found = params.find(key);
  if (found == params.end()) return fallback;
  const int64_t count = found->is_number_integer() ? found->get<int64_t>() : 0;
  if (count < 1 || count > most)
    return base::make_error(base::Errc::kInvalid, "parameter \"{}\": want a number from 1 to {}",
                            key, most);
  return static_cast<unsigned>(count);
}

/// A truth member of the parameters; false if it is missing, kInvalid if it is no truth value.
inline base::Result<bool> bool_param(const nlohmann::json& params, const char* key) {
  const auto found = params.find(key);
  if (found == params.end()) return false;
  if (!found->is_boolean())
    return base::make_error(base::Errc::kInvalid, "parameter \"{}\" must be true or false", key);
  return found->get<bool>();
}

}  // namespace braid::cli
