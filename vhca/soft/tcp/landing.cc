// TcpStream, data of frames that are longer than the buffer: received where it belongs.
#include <algorithm>
#include <cstring>

#include "vhca/soft/copy.h"
#include "vhca/soft/tcp/stream.h"

namespace braid::vhca::soft::tcp {

void TcpStream::begin_landing(const FrameHeader& header) {
  landing_ = header;
  landed_ = 0;
  into_ = Into::kNowhere;
  if (closed_ || end_ == nullptr) return;
  acknowledged_ = std::max<uint64_t>(acknowledged_, header.acknowledged);
  advance();
  if (closed_) return;
  if (static_cast<FrameKind>(header.kind) == FrameKind::kResponse) {
    if (outstanding(header.sequence, static_cast<uint32_t>(header.length))) {
      into_ = Into::kResponse;
    }
    return;
  }
  const Request request = request_of(header);
  const Answer verdict = end_->land(request, /*begun=*/false, place_);
  if (verdict.kind != Answer::Kind::kAck) return answer(request, verdict, {});
  if (!closed_) into_ = Into::kRequest;
}

/// Before memory is touched again: it may have been deregistered.
bool TcpStream::look_up_again() {
  if (into_ == Into::kResponse) return destination_stands();
  const Request request = request_of(landing_);
  const Answer verdict = end_->land(request, /*begun=*/true, place_);
  if (verdict.kind == Answer::Kind::kAck) return true;
  into_ = Into::kNowhere;
  answer(request, verdict, {});
  return false;
}

/// That of our own READ. Else it fails, and what comes of its data goes nowhere.
bool TcpStream::destination_stands() {
  if (end_->stand(reads_[reads_tail_ % reads_.size()].pieces, /*lands=*/true)) return true;
  into_ = Into::kNowhere;
  ++reads_tail_;
  answered_ = landing_.sequence + 1;
  end_->answered_locked(landing_.sequence,
                        {.kind = Answer::Kind::kError, .status = IBV_WC_LOC_PROT_ERR}, {});
  return false;
}

/// What is left of the data's place; nothing while headers come. Data for nowhere goes through the
/// buffer.
uint32_t TcpStream::landing_room(iovec* pieces) {
  if (into_ == Into::kBuffer || into_ == Into::kNowhere || !look_up_again()) return 0;
  const std::span<const Piece> place = into_ == Into::kRequest
                                           ? std::span<const Piece>(place_.pieces, place_.count)
                                           : reads_[reads_tail_ % reads_.size()].pieces;
  const uint64_t total = landing_.length;
  const uint64_t direct = total - sizeof tail_bytes_;  // longer than the buffer, so than that
  uint64_t skip = landed_;
  uint64_t at = 0;
  uint32_t count = 0;
  for (const Piece& piece : place) {
    const uint64_t end = std::min<uint64_t>(at + piece.length, direct);
    if (end > at && landed_ < end) {
      skip = landed_ > at ? landed_ - at : 0;
      pieces[count++] = {piece.address + skip, end - at - skip};
    }
    at += piece.length;
  }
  const uint64_t of_tail = landed_ > direct ? landed_ - direct : 0;
  pieces[count++] = {tail_bytes_ + of_tail, sizeof tail_bytes_ - of_tail};
  return count;
}

/// What came while receive_pieces() stood: first to the place of the data, then to the buffer.
void TcpStream::landed_bytes(size_t count) {
  if (into_ == Into::kRequest || into_ == Into::kResponse) {
    const uint64_t landed = std::min<uint64_t>(count, landing_.length - landed_);
    landed_ += landed;
    arrived_bytes_ += landed;
    count -= landed;
    if (landed_ == landing_.length) landing_done();
  }
  filled_ += count;
}

/// Data of the frame under way that stands in the buffer. True if all of it has come.
size_t TcpStream::land_from_buffer() {
  const uint64_t here = std::min<uint64_t>(filled_ - begin_, landing_.length - landed_);
  uint64_t left = here;
  iovec pieces[kPieces];
  const uint32_t count = landing_room(pieces);
  for (uint32_t i = 0; i < count && left > 0; ++i) {
    const size_t bytes = std::min<uint64_t>(pieces[i].iov_len, left);
    std::memcpy(pieces[i].iov_base, buffer_.get() + begin_ + (here - left), bytes);
    left -= bytes;
  }
  begin_ += here;
  landed_ += here;
  return here;
}

void TcpStream::landing_done() {
  const Into into = std::exchange(into_, Into::kBuffer);
  if (into == Into::kNowhere) return;
  // Whoever sees the last bytes shall see all: these are stored last. They may lie in several
  // pieces.
  const std::span<const Piece> place = into == Into::kRequest
                                           ? std::span<const Piece>(place_.pieces, place_.count)
                                           : reads_[reads_tail_ % reads_.size()].pieces;
  const uint64_t direct = landing_.length - sizeof tail_bytes_;
  uint64_t at = 0;
  for (const Piece& piece : place) {
    const uint64_t from = std::max(at, direct);
    const uint64_t to = at + piece.length;
    if (to > from) {
      copy_last_word_last(piece.address + (from - at), tail_bytes_ + (from - direct), to - from);
    }
    at = to;
  }
  if (into == Into::kResponse) return response(landing_, {}, /*landed=*/true);
  const Request request = request_of(landing_);
  const Answer verdict = end_->respond_landed(request);
  answer(request, verdict, {});
  if (hindered()) [[unlikely]]
    respond_again(request, {}, verdict);
}

}  // namespace braid::vhca::soft::tcp
