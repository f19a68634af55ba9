// The table of QP states in README.md is the one in the code.
#include "vhca/qp_state.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace braid::vhca {
namespace {

/// The rows of the README's table: "| FROM | TO | REQUIRED | OPTIONAL |" below its heading.
std::vector<std::string> rows_of_readme() {
  std::ifstream file("vhca/README.md");
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| from |", 0) == 0) {
      inside = true;
      std::getline(file, line);  // the rule below the heading
    } else if (inside && line.rfind("|", 0) == 0) {
      rows.push_back(line);
    } else {
      inside = false;
    }
  }
  return rows;
}

std::string cell(int mask) {
  return mask == 0 ? "" : qp_attr_mask_text(mask) + " ";
}

TEST(QpStateTest, ReadmeShowsTheTableOfTheCode) {
  std::vector<std::string> expected;
  for (const QpTransition& each : qp_transitions()) {
    std::string required = cell(each.required);
    std::string optional = cell(each.optional);
    for (std::string* text : {&required, &optional}) {
      for (size_t at; (at = text->find(" | ")) != std::string::npos;) text->replace(at, 3, ", ");
    }
    expected.push_back("| " + std::string(qp_state_text(each.from)) + " | " +
                       std::string(qp_state_text(each.to)) + " | " + required + "| " + optional +
                       "|");
  }
  EXPECT_EQ(rows_of_readme(), expected);
}

TEST(QpStateTest, MasksAreNamedAndUnknownBitsShown) {
  EXPECT_EQ(qp_attr_mask_text(IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "ACCESS_FLAGS | PORT");
  EXPECT_EQ(qp_attr_mask_text(IBV_QP_AV | 1 << 30), "AV | 0x40000000");
  EXPECT_EQ(qp_attr_mask_text(0), "");
}

}  // namespace
}  // namespace braid::vhca
