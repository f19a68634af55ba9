// ReplayNote: while it exists, a crash, an assertion, a sanitizer's report or a run without end
// says on stderr how to replay it. One at a time.
#pragma once

#include <string_view>

namespace braid::sim {

class ReplayNote {
 public:
  /// `command`: what replays the present run. `cpu_seconds_max`: of processor time, then the
  /// process is ended as one that does not end by itself.
  explicit ReplayNote(std::string_view command, unsigned cpu_seconds_max = 600);
  ~ReplayNote();
  ReplayNote(const ReplayNote&) = delete;
  ReplayNote& operator=(const ReplayNote&) = delete;
};

}  // namespace braid::sim
