// What the tests of nodes share: starting and stopping one in this process.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "cli/node.h"

namespace braid::cli {

/// Under a name that no other test or process uses at the same time.
inline std::unique_ptr<Node> start_node(NodeOptions options) {
  static int number = 0;
  options.name = "test." + std::to_string(::getpid()) + ".node" + std::to_string(++number);
  auto node = Node::start(std::move(options));
  EXPECT_TRUE(node.ok()) << node.error().message();
  return node.ok() ? std::move(*node) : nullptr;
}

inline base::Status stop(Node& node, bool force) {
  auto outcome = std::make_shared<std::promise<base::Status>>();
  node.stop(force, [outcome](const base::Status& status) { outcome->set_value(status); });
  return outcome->get_future().get();
}

}  // namespace braid::cli
