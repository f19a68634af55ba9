// The metrics as Prometheus reads them, and as docs/metrics.md lists them.
#include "cli/metrics/metrics_text.h"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/metrics/test_sample.h"

namespace braid::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const NodeSample& sample) {
  return metrics_text({&sample, 1});
}

/// The value of the only sample with this beginning.
double value_of(const std::string& text, const std::string& series) {
  std::vector<double> found;
  for (const std::string& line : lines_of(text))
    if (line.starts_with(series + " ")) found.push_back(std::stod(line.substr(series.size())));
  EXPECT_EQ(found.size(), 1u) << series << "\n" << text;
  return found.empty() ? -1 : found.front();
}

struct FamilyText {
  std::string type, help;
  std::set<std::string> labels;  // of its samples, but for "le"
};

std::map<std::string, FamilyText> families_of(const std::string& text) {
  std::map<std::string, FamilyText> families;
  std::string name;
  const std::regex label("(\\w+)=\"(?:[^\"\\\\]|\\\\.)*\"");
  for (const std::string& line : lines_of(text)) {
    std::istringstream words(line);
    std::string hash, what, rest;
    words >> hash >> what;
    if (hash == "#" && what == "HELP") {
      words >> name >> std::ws;
      EXPECT_FALSE(families.contains(name)) << name << " is there twice";
      std::getline(words, families[name].help);
    } else if (hash == "#") {
      std::string of;
      words >> of >> families[name].type;
      EXPECT_EQ(of, name);
    } else {
      EXPECT_TRUE(line.starts_with(name)) << line << " is not of " << name;
      for (std::sregex_iterator at(line.begin(), line.end(), label), end; at != end; ++at)
        if ((*at)[1] != "le") families[name].labels.insert((*at)[1]);
    }
  }
  return families;
}

TEST(MetricsText, has_no_series_twice_however_long_names_are) {
  NodeSample sample = full_sample();
  const std::string owner = std::string(254, 'o') + "/";  // the longest name of a session
  ExportSample other = sample.exports.at(0);
  sample.exports[0].name = owner + std::string(255, 'n');
  other.name = owner + std::string(254, 'n') + "m";
  sample.exports.push_back(other);
  std::set<std::string> seen;
  for (const std::string& line : lines_of(text_of(sample)))
    if (!line.starts_with("#")) {
      EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
}

TEST(MetricsText, is_listed_in_the_documents_family_by_family) {
  std::ifstream file("docs/metrics.md");
  ASSERT_TRUE(file) << "docs/metrics.md is not there";
  std::set<std::string> rows;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| `braid_")) rows.insert(line);
  for (const auto& [name, family] : families_of(text_of(full_sample()))) {
    std::string labels;
    for (const std::string& label : family.labels) labels += (labels.empty() ? "" : ", ") + label;
    const std::string row =
        "| `" + name + "` | " + family.type + " | " + labels + " | " + family.help + " |";
    EXPECT_EQ(rows.erase(row), 1u) << "docs/metrics.md lacks this line:\n" << row;
    EXPECT_FALSE(labels.empty()) << name << " has no sample in test_sample.h";
  }
  for (const std::string& row : rows) ADD_FAILURE() << "no metric is like this line:\n" << row;
}

TEST(MetricsText, names_and_types_follow_the_practice) {
  for (const auto& [name, family] : families_of(text_of(full_sample()))) {
    EXPECT_EQ(family.type == "counter", name.ends_with("_total")) << name;
    EXPECT_EQ(family.type == "histogram", name.ends_with("latency_seconds")) << name;
    EXPECT_TRUE(family.labels.contains("node")) << name;
    EXPECT_TRUE(family.help.ends_with('.')) << name;
  }
}

TEST(MetricsText, states_are_one_series_each) {
  const std::string text = text_of(full_sample());
  const std::string device = R"(braid_device_state{node="daemon",device="disk",state=")";
  EXPECT_EQ(value_of(text, device + "open\"}"), 1);
  double sum = 0;
  for (const char* state : kDeviceStates) sum += value_of(text, device + state + "\"}");
  EXPECT_EQ(sum, 1);
  const std::string path = R"(braid_path_state{node="daemon",session="1",server="10.0.0.1:1234",)"
                           R"(path="10.0.0.2@10.0.0.1:1234",path_id="0",state=")";
  EXPECT_EQ(value_of(text, path + "reconnecting\"}"), 1);
  EXPECT_EQ(value_of(text, path + "connected\"}"), 0);
}

TEST(MetricsText, filters_tell_what_their_kind_counts) {
  NodeSample sample = full_sample();
  sample.devices[0].filters[0].done.mismatches = 3;
  const std::string text = text_of(sample);
  const std::string filter = R"({node="daemon",device="disk",filter=")";
  EXPECT_EQ(value_of(text, "braid_filter_blocks_total" + filter + R"(0",result="mismatched"})"), 3);
  EXPECT_EQ(value_of(text, "braid_filter_held_total" + filter + "1\"}"), 9);
  EXPECT_EQ(value_of(text, "braid_filter_held_seconds_total" + filter + "1\"}"), 0.045);
  EXPECT_EQ(value_of(text, "braid_filter_failed_total" + filter + "2\"}"), 2);
  EXPECT_EQ(value_of(text, "braid_filter_info" + filter + R"(2",kind="error",spec="error:flush"})"),
            1);
  EXPECT_THAT(text, Not(HasSubstr("braid_filter_held_total" + filter + "2\"}")));
  EXPECT_THAT(text, Not(HasSubstr("braid_filter_failed_total" + filter + "1\"}")));
}

/// Of each histogram: its buckets never fall, the last is its count, its sum is there.
void expect_whole_histograms(const std::string& text) {
  std::map<std::string, std::vector<double>> buckets;
  const std::regex bucket("^(\\w+)_bucket\\{(.*),le=\"([^\"]+)\"\\} (.*)$");
  for (const std::string& line : lines_of(text)) {
    std::smatch parts;
    if (!std::regex_match(line, parts, bucket)) continue;
    buckets[parts[1].str() + "|" + parts[2].str()].push_back(std::stod(parts[4].str()));
  }
  EXPECT_EQ(buckets.size(), 4u);
  for (const auto& [series, counts] : buckets) {
    EXPECT_TRUE(std::is_sorted(counts.begin(), counts.end())) << series;
    const size_t bar = series.find('|');
    const std::string name = series.substr(0, bar), labels = "{" + series.substr(bar + 1) + "}";
    EXPECT_EQ(value_of(text, name + "_count" + labels), counts.back()) << series;
    EXPECT_GE(value_of(text, name + "_sum" + labels), 0) << series;
  }
}

TEST(MetricsText, histograms_agree_with_what_was_recorded) {
  const std::string text = text_of(full_sample());
  expect_whole_histograms(text);
  const std::string reads = R"({node="daemon",device="disk",kind="read")";
  const std::string name = "braid_device_latency_seconds";
  // 1 to 40 us were recorded: 1 us below 1.024, 1 to 4 below 4.096, 1 to 32 below 32.768.
  EXPECT_EQ(value_of(text, name + "_bucket" + reads + R"(,le="0.000001024"})"), 1);
  EXPECT_EQ(value_of(text, name + "_bucket" + reads + R"(,le="0.000004096"})"), 4);
  EXPECT_EQ(value_of(text, name + "_bucket" + reads + R"(,le="0.000032768"})"), 32);
  EXPECT_EQ(value_of(text, name + "_count" + reads + "}"), 40);
  EXPECT_DOUBLE_EQ(value_of(text, name + "_sum" + reads + "}"), 820e-6);
  const std::string writes = R"({node="daemon",device="disk",kind="write")";
  EXPECT_EQ(value_of(text, name + "_bucket" + writes + R"(,le="8.589934592"})"), 1);
  EXPECT_EQ(value_of(text, name + "_bucket" + writes + R"(,le="+Inf"})"), 2);
}

TEST(MetricsText, series_are_there_once_also_of_several_nodes_and_alike_paths) {
  const std::vector<NodeSample> nodes = {full_sample("a"), full_sample("b")};
  std::set<std::string> seen;
  for (const std::string& line : lines_of(metrics_text(nodes)))
    if (!line.starts_with('#')) {
      EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
  EXPECT_TRUE(seen.contains(
      R"(braid_client_connection_reads_total{node="b",client="host.daemon",session="4",)"
      R"(path="10.0.0.2#2",connection="1"})"));
}

TEST(MetricsText, what_peers_say_cannot_add_a_line) {
  NodeSample sample = full_sample();
  sample.clients[0].name = "x\"} 1\nbraid_forged_total 1\x1b[2J";
  const std::string text = text_of(sample);
  EXPECT_THAT(text, HasSubstr(R"(client="x\"} 1\nbraid_forged_total 1\\x1b[2J")"));
  EXPECT_EQ(text.find("\nbraid_forged"), std::string::npos);
}

TEST(MetricsText, of_a_thousand_devices_has_all_of_them) {
  NodeSample sample = full_sample();
  sample.devices.clear();
  for (int i = 0; i < 1000; ++i) sample.devices.push_back(full_device("d" + std::to_string(i)));
  const auto began = std::chrono::steady_clock::now();
  const std::string text = text_of(sample);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  size_t lines = 0;
  for (const std::string& line : lines_of(text)) lines += line.starts_with("braid_device_") ? 1 : 0;
  EXPECT_EQ(lines, 1000u * (1 + kDeviceStates.size() + 26 + 3 * 27));
  RecordProperty("milliseconds", std::to_string(took.count()));
  RecordProperty("bytes", std::to_string(text.size()));
}

}  // namespace
}  // namespace braid::cli
