// What tests of a QP's states need: a link to nowhere, with which a QP can go to RTR by modify().
#pragma once

#include "vhca/soft/qp.h"

namespace braid::vhca::soft {

/// Takes requests, and nothing comes of them.
class SilentLink final : public Link {
 public:
  SilentLink() : Link(LinkFamily::kMessage) {}
  Execution execute(const Request&) override { return {.outcome = Outcome::kSent}; }
  Next next_arrival(Arrival&) override { return Next::kNone; }
  void pop_arrival() override {}
  void receive_posted(uint32_t, bool, std::span<const uint32_t>) override {}
  void arm(bool, bool) override {}
  void qp_changed(uint32_t, uint8_t) override {}
  bool close() override { return true; }
};

}  // namespace braid::vhca::soft
