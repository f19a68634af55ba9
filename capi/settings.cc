#include "capi/settings.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "reach/target.h"

namespace braid::capi {

using base::Errc;
using base::make_error;
using base::Status;

namespace {

constexpr size_t kNameBytesMax = 254;  // trs::ClientOptions::session_name

struct Setting {
  std::string_view name;
  bool fixed;  // once the context has begun (Settings)
  Status (*set)(Settings& settings, std::string_view value);
};

Status set_access(Settings& settings, std::string_view value) {
  using bnbd::wire::AccessMode;
  if (value != "rw" && value != "ro" && value != "migration")
    return make_error(Errc::kInvalid, "want rw, ro or migration");
  settings.access = value == "rw"   ? AccessMode::kReadWrite
                    : value == "ro" ? AccessMode::kReadOnly
                                    : AccessMode::kMigration;
  return {};
}

Status set_key(Settings& settings, std::string_view value) {
  settings.key_file = value;
  return {};
}

Status set_give_up_after(Settings& settings, std::string_view value) {
  BRAID_TRY(settings.give_up_after_ns, reach::parse_duration(value));
  return {};
}

Status set_lost_after(Settings& settings, std::string_view value) {
  BRAID_TRY(settings.lost_after_ns, reach::parse_duration(value));
  return {};
}

Status set_poll(Settings& settings, std::string_view value) {
  BRAID_TRY(settings.poll_budget_ns, reach::parse_poll_budget(value));
  return {};
}

Status set_device(Settings& settings, std::string_view value) {
  BRAID_TRY(const auto devices, reach::parse_devices(std::string(value)));
  settings.hcas.device = value;
  return {};
}

Status set_wire(Settings& settings, std::string_view value) {
  if (value != "auto" && value != "tcp") return make_error(Errc::kInvalid, "want auto or tcp");
  settings.hcas.tcp_within_host = value == "tcp";
  return {};
}

Status set_queue_depth(Settings& settings, std::string_view value) {
  uint32_t depth = 0;
  const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), depth);
  if (status != std::errc() || end != value.data() + value.size() || depth < 1 ||
      depth > kQueueDepthMax)
    return make_error(Errc::kInvalid, "want a number from 1 to {}", kQueueDepthMax);
  settings.queue_depth = depth;
  return {};
}

Status set_name(Settings& settings, std::string_view value) {
  if (value.size() > kNameBytesMax)
    return make_error(Errc::kInvalid, "want at most {} bytes, not {}", kNameBytesMax, value.size());
  settings.name = value;
  return {};
}

Status set_log(Settings& settings, std::string_view value) {
  using base::LogLevel;
  for (const LogLevel level :
       {LogLevel::kOff, LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    if (value != base::to_string(level)) continue;
    settings.log = level;
    return {};
  }
  return make_error(Errc::kInvalid, "want off, error, warning, info or debug");
}

constexpr Setting kSettings[] = {
    {"access", false, set_access},
    {"key", false, set_key},
    {"give-up-after", false, set_give_up_after},
    {"lost-after", false, set_lost_after},
    {"poll", false, set_poll},
    {"device", true, set_device},
    {"wire", true, set_wire},
    {"queue-depth", true, set_queue_depth},
    {"name", true, set_name},
    {"log", true, set_log},
};

}  // namespace

Status set(Settings& settings, std::string_view name, std::string_view value, bool begun) {
  const auto* const found = std::find_if(std::begin(kSettings), std::end(kSettings),
                                         [&](const Setting& one) { return one.name == name; });
  if (found == std::end(kSettings)) {
    std::string names;
    for (const Setting& one : kSettings) names += fmt::format(" {}", one.name);
    return make_error(Errc::kInvalid, "there is no setting \"{}\"; there are:{}", name, names);
  }
  if (begun && found->fixed)
    return make_error(Errc::kBusy,
                      "{} \"{}\": it is fixed, as the context has opened a device or given a "
                      "descriptor (braid_fd()); want another context",
                      name, value);
  const Status done = found->set(settings, value);
  return done.ok() ? done : Status(done.error().with("{} \"{}\"", name, value));
}

}  // namespace braid::capi
