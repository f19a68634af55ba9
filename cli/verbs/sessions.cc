// `braid sessions`: the clients of this host's servers, and what does not hold with those that are
// not Braid's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/control.h"
#include "cli/table.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using nlohmann::json;

namespace {

std::string device_list(const json& session) {
  std::string text;
  for (const json& device : items(session, "devices"))
    text += (text.empty() ? "" : ", ") + text_of(member(device, "export")) + " (" +
            text_of(member(device, "access")) +
            (member(device, "ending") == true ? ", ending" : "") + ")";
  return text.empty() ? "-" : text;
}

/// From where its paths come; a node of another version tells of the first one only.
std::string addresses_text(const json& session) {
  std::string text;
  for (const json& peer : items(session, "paths"))
    text += (text.empty() ? "" : ", ") + text_of(peer);
  return text.empty() ? text_of(member(session, "peer")) : text;
}

/// How its chunks are guarded: of all paths, if they have the same.
std::string guards_text(const json& session) {
  std::string text, last;
  for (const json& guard : items(session, "chunk_guards")) {
    if (text_of(guard) == last) continue;
    last = text_of(guard);
    text += (text.empty() ? "" : ", ") + last;
  }
  return text.empty() ? "-" : text;
}

/// Who speaks RTRS and is not Braid is Linux's, as far as anybody knows. A version of Braid that
/// takes no news unasked is told from others.
std::string peer_text(const json& session) {
  const json braid = member(session, "braid");
  if (!braid.is_boolean()) return "-";
  if (braid == false) return "Linux";
  return member(session, "news") == "asked for" ? "Braid, asks for news" : "Braid";
}

/// What its paths have carried since they came up.
std::string bytes_text(const json& session, const char* key) {
  if (!member(session, "path_statistics").is_array()) return "-";
  uint64_t sum = 0;
  for (const json& path : items(session, "path_statistics"))
    if (const json bytes = member(path, key); bytes.is_number_unsigned())
      sum += bytes.get<uint64_t>();
  return size_text(sum);
}

}  // namespace

std::string client_sessions_text(const json& sessions) {
  Table table({"SESSION", "PEER", "FROM", "KEY", ">PATHS", ">READ", ">WRITTEN", "CHUNKS", ">FOR",
               "DEVICES", "NODE"});
  json not_held = json::array();  // by any of those that are not Braid's
  for (const json& session : sessions) {
    table.row({text_of(member(session, "name")), peer_text(session), addresses_text(session),
               text_of(member(session, "key")),
               std::to_string(std::max<size_t>(items(session, "paths").size(), 1)),
               bytes_text(session, "read_bytes"), bytes_text(session, "write_bytes"),
               guards_text(session), text_of(member(session, "open_for_s")) + " s",
               device_list(session), text_of(member(session, "node"))});
    for (const json& sentence : items(session, "not_held"))
      if (std::ranges::find(not_held, sentence) == not_held.end()) not_held.push_back(sentence);
  }
  std::string text = table.text();
  if (!not_held.empty()) text += "\nWith Linux clients this does not hold:\n";
  for (const json& sentence : not_held) text += "  " + text_of(sentence) + "\n";
  return text;
}

namespace {

void sessions(Context& context) {
  auto nodes = ask_nodes(context);
  if (!nodes.ok()) return report(context, nodes.error());
  json all = json::array();
  for (const json& node : nodes->answered) {
    for (json session : items(node.at("server"), "session_list")) {
      if (!session.is_object()) continue;
      session["node"] = node.at("node");
      all.push_back(session);
    }
  }
  if (context.json) return print_json({{"sessions", all}});
  std::cout << (all.empty() ? "no client has a session\n" : client_sessions_text(all))
            << std::flush;
}

}  // namespace

void add_sessions(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("sessions", "list the clients of this host's servers");
  verb->footer("Examples:\n  braid sessions\n  braid sessions --json");
  verb->callback([&context] { sessions(context); });
}

}  // namespace braid::cli
