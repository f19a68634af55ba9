// Who goes when too many have connected to a listener and say nothing.
#include "vhca/soft/candidates.h"

#include <gtest/gtest.h>

#include <set>

namespace braid::vhca::soft {
namespace {

struct Silent {
  Silent(std::set<int>& names, int from, int own) : all(names), origin(from), name(own) {
    all.insert(name);
  }
  ~Silent() { all.erase(name); }
  std::set<int>& all;
  const int origin;
  const int name;
  std::list<std::unique_ptr<Silent>>::iterator self;
};

class CandidatesTest : public testing::Test {
 protected:
  Silent& connect(int origin, int name) {
    candidates.make_room(origin);
    auto made = std::make_unique<Silent>(names, origin, name);
    Silent& silent = *made;
    candidates.add(std::move(made));
    return silent;
  }
  std::set<int> names;  // of those that are there
  Candidates<Silent> candidates{{.all = 6, .of_one_origin = 4}};
};

TEST_F(CandidatesTest, WhoHasTooManyLosesItsOldest) {
  connect(7, 0);
  for (int name = 1; name <= 5; ++name) connect(9, name);
  EXPECT_EQ(names, (std::set{0, 2, 3, 4, 5}));
}

TEST_F(CandidatesTest, OfAllTheOldestOfWhoeverHasMostGoes) {
  connect(7, 0);
  connect(8, 1);
  connect(9, 2);
  connect(9, 3);
  connect(8, 4);
  connect(9, 5);
  connect(6, 6);
  EXPECT_EQ(names, (std::set{0, 1, 3, 4, 5, 6})) << "9 had three";
}

TEST_F(CandidatesTest, OfThoseWhoHaveAsManyTheOldestGoes) {
  for (int name = 0; name < 7; ++name) connect(10 - name, name);
  EXPECT_EQ(names, (std::set{1, 2, 3, 4, 5, 6})) << "and not whose origin is the least";
}

TEST_F(CandidatesTest, WhoHasSaidWhatItWantsIsNotCounted) {
  Silent& speaks = connect(9, 0);
  for (int name = 1; name <= 3; ++name) connect(9, name);
  EXPECT_EQ(candidates.take(speaks)->name, 0);
  connect(9, 4);
  EXPECT_EQ(names, (std::set{1, 2, 3, 4}));
}

}  // namespace
}  // namespace braid::vhca::soft
