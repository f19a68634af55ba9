// A region of a local device: a segment, registered nowhere.
#pragma once

#include <memory>

#include "base/host.h"
#include "bnbd/block.h"

namespace braid::bnbd {

class LocalRegion : public Region {
 public:
  explicit LocalRegion(std::unique_ptr<base::Segment> segment) : segment_(std::move(segment)) {}
  static base::Result<std::unique_ptr<Region>> create(base::Host& host, size_t size_bytes) {
    BRAID_TRY(auto segment, host.create_segment(size_bytes, "block region"));
    return std::unique_ptr<Region>(std::make_unique<LocalRegion>(std::move(segment)));
  }

  std::byte* data() const override { return segment_->data(); }
  size_t size() const override { return segment_->size(); }
  const vhca::Mr* mr() const override { return nullptr; }

 private:
  const std::unique_ptr<base::Segment> segment_;
};

}  // namespace braid::bnbd
