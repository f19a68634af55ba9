// What the users of a node's status rely on. Keys that only `show` prints are not asked for.
#include <nlohmann/json.hpp>
#include <span>

#include "cli/control.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Status;
using nlohmann::json;

namespace {

enum class Kind : uint8_t { kText, kTextOrNull, kNumber, kTexts, kObjects };

struct Member {
  const char* key;
  Kind kind;
};

constexpr Member kNodeMembers[] = {{"node", Kind::kText},
                                   {"role", Kind::kText},
                                   {"devices", Kind::kObjects},
                                   {"exports", Kind::kObjects},
                                   {"notes", Kind::kTexts}};
constexpr Member kDeviceMembers[] = {{"name", Kind::kText},
                                     {"device", Kind::kTextOrNull},
                                     {"target", Kind::kText},
                                     {"access", Kind::kText},
                                     {"state", Kind::kText},
                                     {"size_bytes", Kind::kNumber},
                                     {"front_end", Kind::kTextOrNull},
                                     {"why", Kind::kTexts}};
constexpr Member kExportMembers[] = {{"name", Kind::kText},    {"kind", Kind::kText},
                                     {"state", Kind::kText},   {"size_bytes", Kind::kNumber},
                                     {"open_by", Kind::kText}, {"server", Kind::kText},
                                     {"why", Kind::kTexts}};

bool all(const json& list, bool (json::*is)() const noexcept) {
  if (!list.is_array()) return false;
  for (const json& one : list)
    if (!(one.*is)()) return false;
  return true;
}

bool fits(const json& value, Kind kind) {
  switch (kind) {
    case Kind::kText:
      return value.is_string();
    case Kind::kTextOrNull:
      return value.is_string() || value.is_null();
    case Kind::kNumber:
      return value.is_number_unsigned();
    case Kind::kTexts:
      return all(value, &json::is_string);
    case Kind::kObjects:
      return all(value, &json::is_object);
  }
  return false;
}

Status check(const json& object, std::span<const Member> members, const char* what) {
  if (!object.is_object()) return make_error(Errc::kProtocol, "a {} must be an object", what);
  for (const Member& member : members) {
    const auto found = object.find(member.key);
    if (found == object.end() || !fits(*found, member.kind))
      return make_error(Errc::kProtocol, "a {} without a proper \"{}\"", what, member.key);
  }
  return {};
}

}  // namespace

Status check_status(const json& status) {
  BRAID_CHECK(check(status, kNodeMembers, "status"));
  for (const json& device : status["devices"]) BRAID_CHECK(check(device, kDeviceMembers, "device"));
  for (const json& exported : status["exports"])
    BRAID_CHECK(check(exported, kExportMembers, "export"));
  return {};
}

Status check_device(const json& device) {
  return check(device, kDeviceMembers, "device");
}

}  // namespace braid::cli
