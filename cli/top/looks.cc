#include "cli/top/looks.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid::cli {

namespace {

bool tells_of(const std::vector<std::string>& silent, const std::string& node) {
  const std::string quoted = fmt::format("node \"{}\"", node);
  return std::any_of(silent.begin(), silent.end(),
                     [&](const std::string& why) { return why.starts_with(quoted); });
}

}  // namespace

TopView Looks::take(std::vector<NodeSample> nodes, std::vector<std::string> silent,
                    TopOrder order) {
  TopView view;
  std::vector<NodeSample> before;
  for (const auto& [name, sample] : last_) before.push_back(sample);
  view.rows = rows_between(before, nodes);
  sort_rows(view.rows, order);
  view.nodes = nodes.size();
  view.silent = std::move(silent);
  for (const NodeSample& node : nodes) missing_.erase(node.node);
  for (const auto& last : last_) {
    const std::string& name = last.first;
    const bool answers = std::any_of(nodes.begin(), nodes.end(),
                                     [&](const NodeSample& node) { return node.node == name; });
    if (!answers && !tells_of(view.silent, name)) missing_.try_emplace(name, kMourned);
  }
  for (auto at = missing_.begin(); at != missing_.end();) {
    if (tells_of(view.silent, at->first)) {
      at = missing_.erase(at);
      continue;
    }
    view.silent.push_back(fmt::format("node \"{}\" has ended", at->first));
    last_.erase(at->first);
    at = --at->second == 0 ? missing_.erase(at) : std::next(at);
  }
  for (NodeSample& node : nodes) last_[node.node] = std::move(node);
  return view;
}

}  // namespace braid::cli
