// The server of the NBD front end with the clients' side of its streams in the input's hands:
// requests whole, in pieces, bent or rubbish, answers read slowly, connections closed at any time,
// while a device completes in any order and with errors. On a stream that kept the rules each
// request is answered exactly once, with the data of its place; the device gets nothing that
// breaks its limits; at the end nothing is left with either.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
#include "bnbd/frontend/nbd_server.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

using namespace braid::bnbd;  // NOLINT
using braid::base::Errc;
using braid::fuzz::Numbers;
using braid::fuzz::require;
namespace base = braid::base;

constexpr uint64_t kDeviceBytes = 64 << 10;
constexpr uint32_t kMaxIoBytes = 8192;
constexpr unsigned kSlots = 3;
constexpr size_t kConnections = 2;
constexpr size_t kUnsentMax = 256 << 10;

braid::fuzz::Reached answered("a request is answered"), cut_off("who breaks the rules is cut off"),
    said_goodbye("a stream ends by DISCONNECT"),
    heard_out("who has asked and sends no more is answered"),
    chunked("a read is answered by a chunk"), worded("an error has its words"),
    in_chunks("a long read comes in several chunks"), in_parts("a long write is answered"),
    cut_short("a simple reply is cut short by an error");

/// What each byte of a place reads as, and is written as.
std::byte byte_at(uint64_t offset) {
  return static_cast<std::byte>(offset / 512 * 31 + 7);
}
bool as_its_place(std::span<const std::byte> bytes, uint64_t offset) {
  for (const std::byte byte : bytes)
    if (byte != byte_at(offset++)) return false;
  return true;
}

class HeapRegion final : public Region {
 public:
  explicit HeapRegion(size_t size_bytes) : bytes_(size_bytes) {}
  std::byte* data() const override { return bytes_.data(); }
  size_t size() const override { return bytes_.size(); }
  const braid::vhca::Mr* mr() const override { return nullptr; }

 private:
  mutable std::vector<std::byte> bytes_;
};

/// Holds every request until it is told how it ends.
class HeldDisk final : public BlockDevice {
 public:
  HeldDisk() {
    info_.size_bytes = kDeviceBytes;
    info_.max_io_bytes = kMaxIoBytes;
    info_.max_discard_bytes = info_.max_write_zeroes_bytes = 16 << 10;
  }
  const BlockInfo& info() const override { return info_; }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return std::unique_ptr<Region>(std::make_unique<HeapRegion>(size_bytes));
  }
  BlockStatistics statistics() const override { return {}; }
  void submit(BlockRequest& request) override {
    require(check(info_, request) == Errc::kOk, "the device gets what it can do");
    const std::span<const std::byte> payload(request.buffer.address, request.length_bytes);
    if (request.op == BlockOp::kWrite && keeps_rules) {
      require(as_its_place(payload, request.offset_bytes), "a write brings what was sent");
    }
    held.push_back(&request);
  }
  void complete(size_t index, Errc status) {
    BlockRequest& request = *held[index];
    held.erase(held.begin() + static_cast<ptrdiff_t>(index));
    read_failed = read_failed || (request.op == BlockOp::kRead && status != Errc::kOk);
    if (request.op == BlockOp::kRead) {
      for (uint64_t i = 0; i < request.length_bytes; ++i) {
        request.buffer.address[i] = byte_at(request.offset_bytes + i);
      }
    }
    request.done(request, status);
  }
  std::vector<BlockRequest*> held;
  bool keeps_rules = true;  // all streams have
  bool read_failed = false;

 private:
  BlockInfo info_;
};

/// The client's end of one stream.
class Stream {
 public:
  Stream(int fd, bool structured) : socket_(fd), structured_(structured) {}
  bool open() const { return socket_.valid(); }
  bool keeps_rules() const { return keeps_rules_; }
  bool all_answered() const { return waiting_.empty(); }
  bool all_sent() const { return unsent_.empty(); }
  void close() { socket_ = UniqueFd(); }
  /// Its sending side, between two requests.
  void finish() {
    if (!open() || !unsent_.empty() || left_) return;
    heard_out.count(!waiting_.empty());
    left_ = finished_ = true;
    (void)::shutdown(socket_.get(), SHUT_WR);
  }

  /// A request as it should be, or with some bytes of it changed. True: it keeps the rules.
  bool ask(Numbers& numbers) {
    if (unsent_.size() > kUnsentMax || left_) return true;
    static constexpr std::array kCommands = {NbdCommand::kRead,        NbdCommand::kWrite,
                                             NbdCommand::kFlush,       NbdCommand::kTrim,
                                             NbdCommand::kWriteZeroes, NbdCommand::kDisconnect};
    NbdCommand command = kCommands[numbers.below(5)];
    if (numbers.odd(32)) command = NbdCommand::kDisconnect;
    NbdRequest request;
    request.magic = kNbdRequestMagic;
    request.command = static_cast<uint16_t>(command);
    if (numbers.odd(8)) request.flags = numbers.next<uint16_t>();
    request.cookie = ++cookies_;
    request.offset_bytes = 512u * numbers.below(140);
    uint32_t length = numbers.odd(4) ? numbers.next<uint16_t>() : 512u * numbers.below(50);
    if (command == NbdCommand::kFlush || command == NbdCommand::kDisconnect) length = 0;
    request.length_bytes = length;
    std::vector<std::byte> bytes = braid::fuzz::to_bytes(request);
    const std::vector<std::byte> bent = numbers.bent(bytes);
    if (bent != bytes) keeps_rules_ = false;
    unsent_.insert(unsent_.end(), bent.begin(), bent.end());
    if (command == NbdCommand::kWrite) {
      for (uint32_t i = 0; i < length; ++i) unsent_.push_back(byte_at(request.offset_bytes + i));
    }
    if (command == NbdCommand::kDisconnect) {
      left_ = true;
    } else {
      waiting_[cookies_] = {command, request.offset_bytes, length};
    }
    return keeps_rules_;
  }
  void rubbish(std::vector<std::byte> bytes) {
    if (left_) return;
    if (!bytes.empty()) keeps_rules_ = false;
    unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  }

  /// As much as the socket takes, at most `max_bytes`.
  void send(size_t max_bytes) {
    const size_t bytes = std::min(max_bytes, unsent_.size());
    if (!open() || bytes == 0) return;
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
    if (sent < 0 && errno != EAGAIN) ended_ = true;
  }
  void receive(size_t max_bytes) {
    if (!open() || max_bytes == 0) return;
    std::vector<std::byte> bytes(max_bytes);
    const ssize_t came = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (came == 0 || (came < 0 && errno != EAGAIN)) ended_ = true;
    if (came > 0) received_.insert(received_.end(), bytes.begin(), bytes.begin() + came);
    while (take_answer()) {
    }
  }
  /// The server has closed it.
  bool ended() const { return ended_; }
  /// It has said that it goes, or sends no more.
  bool left() const { return left_; }
  /// Such a reply has begun, maybe, and its end may not come.
  bool waits_for_long_simple_reply() const {
    return !structured_ && std::any_of(waiting_.begin(), waiting_.end(), [](const auto& one) {
      return one.second.command == NbdCommand::kRead && one.second.length_bytes > kMaxIoBytes;
    });
  }
  bool has_disconnected() const { return left_ && !finished_; }

 private:
  struct Asked {
    NbdCommand command = NbdCommand::kRead;
    uint64_t offset_bytes = 0;
    uint32_t length_bytes = 0;
    uint32_t got_bytes = 0;  // of a read, by chunks
  };

  /// The next whole answer, if it is there; whoever broke the rules cannot know how long it is.
  bool take_answer() {
    NbdReply reply;
    if (!keeps_rules_ || received_.size() < sizeof(reply)) return false;
    std::memcpy(&reply, received_.data(), sizeof(reply));
    if (uint32_t{reply.magic} == kNbdChunkMagic) return take_chunk();
    require(uint32_t{reply.magic} == kNbdReplyMagic, "an answer begins where one is due");
    const auto asked = waiting_.find(uint64_t{reply.cookie});
    require(asked != waiting_.end(), "each answer is to a request, and the only one");
    require(!structured_ || (asked->second.command != NbdCommand::kRead && reply.error == 0),
            "reads and errors are chunks where that was agreed on");
    const bool data = asked->second.command == NbdCommand::kRead && uint32_t{reply.error} == 0;
    const size_t bytes = sizeof(reply) + (data ? asked->second.length_bytes : 0);
    if (received_.size() < bytes) return false;
    require(as_its_place(std::span(received_).subspan(sizeof(reply), bytes - sizeof(reply)),
                         asked->second.offset_bytes),
            "a read brings what is in its place");
    received_.erase(received_.begin(), received_.begin() + static_cast<ptrdiff_t>(bytes));
    in_parts.count(asked->second.command == NbdCommand::kWrite && reply.error == 0 &&
                   asked->second.length_bytes > kMaxIoBytes);
    waiting_.erase(asked);
    answered.count();
    return true;
  }

  /// A chunk of an answer: a read's data, in order, or an error, the last.
  bool take_chunk() {
    require(structured_, "chunks are for who wants them");
    NbdChunk chunk;
    if (received_.size() < sizeof(chunk)) return false;
    std::memcpy(&chunk, received_.data(), sizeof(chunk));
    const size_t length = chunk.length_bytes;
    if (received_.size() < sizeof(chunk) + length) return false;
    const auto asked = waiting_.find(uint64_t{chunk.cookie});
    require(asked != waiting_.end(), "each answer is to a request, and the only one");
    const bool last = chunk.flags == kNbdChunkDone;
    require(last || chunk.flags == 0, "there is one flag");
    const auto body = std::span<const std::byte>(received_).subspan(sizeof(chunk), length);
    if (chunk.type == kNbdChunkOffsetData) {
      require(asked->second.command == NbdCommand::kRead, "only reads have data");
      base::be64 offset;
      require(length > sizeof(offset), "a chunk has data");
      std::memcpy(&offset, body.data(), sizeof(offset));
      const uint64_t due = asked->second.offset_bytes + asked->second.got_bytes;
      require(offset == due, "a read brings its place");
      require(as_its_place(body.subspan(sizeof(offset)), due),
              "a read brings what is in its place");
      in_chunks.count(last && asked->second.got_bytes != 0);
      asked->second.got_bytes += static_cast<uint32_t>(length - sizeof(offset));
      require(last ? asked->second.got_bytes == asked->second.length_bytes
                   : asked->second.got_bytes < asked->second.length_bytes,
              "a read brings all of it");
      chunked.count();
    } else {
      base::be32 error;
      base::be16 words;
      require(chunk.type == kNbdChunkError && length >= sizeof(error) + sizeof(words),
              "there are two types of chunks");
      std::memcpy(&error, body.data(), sizeof(error));
      std::memcpy(&words, body.data() + sizeof(error), sizeof(words));
      require(last, "an error is the end of an answer");
      require(error != 0 && length == sizeof(error) + sizeof(words) + words, "an error is whole");
      worded.count(words > 0);
    }
    received_.erase(received_.begin(),
                    received_.begin() + static_cast<ptrdiff_t>(sizeof(chunk) + length));
    if (!last) return true;
    waiting_.erase(asked);
    answered.count();
    return true;
  }

  UniqueFd socket_;
  const bool structured_;
  std::vector<std::byte> unsent_, received_;
  std::map<uint64_t, Asked> waiting_;  // by cookie
  uint64_t cookies_ = 0;
  bool keeps_rules_ = true, left_ = false, finished_ = false, ended_ = false;
};

class Game {
 public:
  Game(base::Reactor& reactor, const Numbers& numbers) : reactor_(reactor), numbers_(numbers) {
    std::vector<UniqueFd> server_ends;
    const int small = numbers_.flag() ? 4096 : 64 << 10;
    // Clients of a socket, which come one by one and share the slots, or the kernel's.
    const bool clients = numbers_.flag();
    NbdServerOptions options;
    options.name = "fuzz";
    options.connections_max = clients ? kConnections : 0;
    for (size_t i = 0; i < kConnections; ++i) {
      int ends[2];
      require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
      (void)::setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
      streams_.emplace_back(ends[0], clients && i % 2 == 0);
      server_ends.emplace_back(ends[1]);
    }
    auto pool = SlotPool<NbdServer::Slot>::create(
        disk_, kSlots, kSlots, slot_payload_bytes(disk_.info(), NbdServer::kPayloadMax));
    pool_ = pool->get();
    std::vector<UniqueFd> later;
    if (clients) later = std::exchange(server_ends, {});
    server_ = std::move(
        *NbdServer::create(reactor_, disk_, options, std::move(*pool), std::move(server_ends)));
    for (size_t i = 0; i < later.size(); ++i) {
      const bool added = server_->add(std::move(later[i]), i % 2 == 0, {}).ok();
      require(added, "there is room for each");
    }
  }
  void play() {
    for (unsigned steps = 0; !numbers_.empty() && steps < 500; ++steps) step();
    end();
  }

 private:
  void step() {
    Stream& stream = streams_[numbers_.below(kConnections)];
    switch (numbers_.below(12)) {
      case 0:
      case 1:
      case 2:
        if (!stream.ask(numbers_)) disk_.keeps_rules = false;
        return stream.send(numbers_.odd(4) ? numbers_.next<uint16_t>() : SIZE_MAX);
      case 3:
        return stream.send(numbers_.next<uint8_t>());
      case 4:
      case 5:
        return turn();
      case 6:
      case 7:
        return complete(numbers_.odd(8) ? Errc::kIo : Errc::kOk);
      case 8:
      case 9:
        return stream.receive(numbers_.odd(4) ? numbers_.next<uint8_t>() : kMaxIoBytes);
      case 10:
        if (numbers_.odd(16)) return stream.finish();
        if (!numbers_.odd(8)) return;
        stream.rubbish(numbers_.take(numbers_.next<uint8_t>()));
        disk_.keeps_rules = disk_.keeps_rules && stream.keeps_rules();
        return;
      default:
        if (numbers_.odd(16)) stream.close();
        return;
    }
  }
  void turn() {
    for (int i = 0; i < 3; ++i) (void)reactor_.turn();
  }
  void complete(Errc status) {
    if (disk_.held.empty()) return;
    disk_.complete(numbers_.below(static_cast<uint32_t>(disk_.held.size())), status);
  }

  void end() {
    for (unsigned rounds = 0; !settled() && rounds < 10'000; ++rounds) {
      for (Stream& stream : streams_) {
        stream.send(SIZE_MAX);
        stream.receive(4 * kMaxIoBytes);
      }
      turn();
      while (!disk_.held.empty()) disk_.complete(0, Errc::kOk);
    }
    require(settled(), "every request is answered");
    for (const Stream& stream : streams_) {
      cut_off.count(stream.ended() && !stream.keeps_rules());
      cut_short.count(stream.ended() && stream.keeps_rules() && !stream.all_answered());
      said_goodbye.count(stream.has_disconnected());
    }
    server_->stop();
    require(!server_->alive(), "stopping ends the connections");
    while (!disk_.held.empty()) disk_.complete(0, Errc::kOk);
    require(pool_->in_use() == 0, "all memory for requests is back");
    reactor_.run_until_done(server_->drained());
    server_.reset();
  }
  /// Who broke the rules is owed nothing, nor is who has gone; who has taken its leave is closed
  /// when it has got its answers.
  bool settled() const {
    return std::all_of(streams_.begin(), streams_.end(), [this](const Stream& stream) {
      if (!stream.open() || !stream.keeps_rules()) return true;
      if (stream.ended() && disk_.read_failed && stream.waits_for_long_simple_reply()) return true;
      const bool served = stream.all_sent() && stream.all_answered();
      if (stream.left() && served) return stream.ended();
      require(!stream.ended(), "who keeps the rules is not cut off");
      return served;
    });
  }

  base::Reactor& reactor_;
  Numbers numbers_;
  HeldDisk disk_;
  std::vector<Stream> streams_;
  SlotPool<NbdServer::Slot>* pool_ = nullptr;  // the server's
  NbdServer::Ptr server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  static const std::unique_ptr<base::Host> kHost = [] {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    return std::move(*base::create_linux_host(options));
  }();
  static const std::unique_ptr<base::Reactor> kReactor =
      std::move(*base::Reactor::create(*kHost, {.name = "fuzz"}));
  Game(*kReactor, Numbers({data, size_bytes})).play();
  return 0;
}
