// What the kernel may ask of a FUSE session, with hostile inodes, offsets, sizes and lengths: up to
// eight requests through the real server, on a socket in place of /dev/fuse. libfuse takes the
// kernel's messages apart and trusts their form; what is checked is what we make of the values.
//
// Each request is answered once, with its own number; what reaches the disk lies in the memory that
// the disk gave; nothing stays in flight.
#include <linux/fuse.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "base/reactor.h"
#include "bnbd/backends.h"
#include "bnbd/frontend/fuse_server.h"
#include "tests/fuzz/reached.h"

namespace {

using namespace braid;
using bnbd::BlockOp;

constexpr uint32_t kPayloadMax = 64 << 10;
constexpr uint64_t kDiskBytes = 1 << 20;
constexpr size_t kRequestsMax = 8;
constexpr uint32_t kOpcodes[] = {FUSE_LOOKUP,  FUSE_GETATTR, FUSE_STATFS, FUSE_OPEN,
                                 FUSE_READ,    FUSE_WRITE,   FUSE_FSYNC,  FUSE_FALLOCATE,
                                 FUSE_FORGET,  FUSE_RELEASE, FUSE_FLUSH,  FUSE_GETXATTR,
                                 FUSE_READDIR, FUSE_SETATTR, FUSE_LSEEK,  FUSE_IOCTL};
constexpr uint64_t kInodes[] = {2, 1, 0, 3, UINT64_MAX};
// The structures that follow the header; longer than any of them.
constexpr size_t kArgumentBytes = 64;

fuzz::Verdicts reads("a read"), writes("a write"), discards("a discard");
fuzz::Reached flushed("a flush"), elsewhere("a request to what is not the disk");

void require(bool condition) {
  if (!condition) std::abort();
}

/// A memory disk that looks at every request.
class WatchedDisk : public bnbd::BlockDevice {
 public:
  explicit WatchedDisk(std::unique_ptr<BlockDevice> inner) : inner_(std::move(inner)) {}
  const bnbd::BlockInfo& info() const override { return inner_->info(); }
  bnbd::BlockStatistics statistics() const override { return inner_->statistics(); }
  base::Result<std::unique_ptr<bnbd::Region>> create_region(size_t size_bytes) override {
    return inner_->create_region(size_bytes);
  }
  void submit(bnbd::BlockRequest& request) override {
    if (request.op == BlockOp::kRead || request.op == BlockOp::kWrite) {
      const bnbd::Region& region = *request.buffer.region;
      require(request.buffer.address >= region.data());
      const auto before = static_cast<size_t>(request.buffer.address - region.data());
      require(before <= region.size() && request.length_bytes <= region.size() - before);
      require(request.length_bytes <= kPayloadMax);
    }
    inner_->submit(request);
  }

 private:
  std::unique_ptr<BlockDevice> inner_;
};

/// Host, reactor, disk and server, made once; this end of the session.
class Session {
 public:
  Session() {
    base::LinuxHostOptions host;
    host.log_sink = base::make_null_sink();
    host_ = std::move(base::create_linux_host(host)).value();
    reactor_ = std::move(base::Reactor::create(*host_, {})).value();
    bnbd::MemoryDeviceOptions disk;
    disk.size_bytes = kDiskBytes;
    disk.max_io_bytes = kPayloadMax;
    disk_ =
        std::make_unique<WatchedDisk>(std::move(bnbd::create_memory_device(*host_, disk)).value());
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    kernel_.reset(ends[0]);
    auto slots = bnbd::SlotPool<bnbd::FuseServer::Slot>::create(
        *disk_, 4, 4, bnbd::FuseServer::max_read_bytes(disk_->info()));
    server_ = std::move(bnbd::FuseServer::create(*reactor_, *disk_, "disk",
                                                 std::move(slots).value(), bnbd::UniqueFd(ends[1])))
                  .value();
    struct fuse_init_in init = {};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = 31;
    init.max_readahead = 128 << 10;
    std::memcpy(argument_.data(), &init, sizeof(init));
    require(ask(FUSE_INIT, FUSE_ROOT_ID, sizeof(init), {}) == 0);
    require(reads_a_block());  // else nothing below would get as far as the disk
  }

  /// Sends one request and takes its answer, which has this error (0 or negative).
  int ask(uint32_t opcode, uint64_t inode, size_t argument_bytes,
          std::span<const uint8_t> payload) {
    struct fuse_in_header header = {};
    header.opcode = opcode;
    header.nodeid = inode;
    header.unique = ++unique_;
    std::vector<uint8_t> message(sizeof(header) + argument_bytes + payload.size());
    header.len = static_cast<uint32_t>(message.size());
    std::memcpy(message.data(), &header, sizeof(header));
    std::memcpy(message.data() + sizeof(header), argument_.data(), argument_bytes);
    if (!payload.empty()) {
      std::memcpy(message.data() + sizeof(header) + argument_bytes, payload.data(), payload.size());
    }
    const auto sent = ::send(kernel_.get(), message.data(), message.size(), MSG_NOSIGNAL);
    require(sent == static_cast<ssize_t>(message.size()));
    return opcode == FUSE_FORGET ? expect_silence() : take_answer();
  }
  std::array<uint8_t, kArgumentBytes>& argument() { return argument_; }
  bool idle() const { return server_->alive() && server_->statistics().in_flight == 0; }
  size_t answer_bytes() const { return answer_bytes_; }

 private:
  bool reads_a_block() {
    struct fuse_read_in in = {};
    in.size = 4096;
    std::memcpy(argument_.data(), &in, sizeof(in));
    return ask(FUSE_READ, kInodes[0], kArgumentBytes, {}) == 0 && answer_bytes_ == in.size;
  }
  int take_answer() {
    for (;;) {
      reactor_->turn();
      const auto got = ::recv(kernel_.get(), answer_.data(), answer_.size(), 0);
      if (got < 0 && errno == EAGAIN) {
        require(server_->alive());
        continue;
      }
      struct fuse_out_header header = {};
      require(got >= static_cast<ssize_t>(sizeof(header)));
      std::memcpy(&header, answer_.data(), sizeof(header));
      answer_bytes_ = static_cast<size_t>(got) - sizeof(header);
      require(header.len == static_cast<size_t>(got) && header.unique == unique_);
      require(header.error <= 0 && header.error > -4096);
      return header.error;
    }
  }
  /// The server has taken a request that has no answer.
  int expect_silence() {
    const uint64_t before = server_->statistics().requests;
    while (server_->statistics().requests == before) reactor_->turn();
    require(::recv(kernel_.get(), answer_.data(), answer_.size(), 0) < 0 && errno == EAGAIN);
    return 0;
  }

  std::unique_ptr<base::Host> host_;
  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<WatchedDisk> disk_;
  bnbd::FuseServer::Ptr server_;
  bnbd::UniqueFd kernel_;
  uint64_t unique_ = 0;
  std::array<uint8_t, kArgumentBytes> argument_ = {};
  std::vector<uint8_t> answer_ = std::vector<uint8_t>(kPayloadMax + 4096);
  size_t answer_bytes_ = 0;
};

void count(uint32_t opcode, bool done) {
  if (opcode == FUSE_READ) reads.count(done);
  if (opcode == FUSE_WRITE) writes.count(done);
  if (opcode == FUSE_FALLOCATE) discards.count(done);
  flushed.count(opcode == FUSE_FSYNC && done);
}

/// The size of an opcode's own structure; what follows it is a name or a payload.
size_t argument_bytes_of(uint32_t opcode) {
  if (opcode == FUSE_LOOKUP || opcode == FUSE_STATFS) return 0;
  if (opcode == FUSE_WRITE) return sizeof(struct fuse_write_in);
  return kArgumentBytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  static Session session;
  static const std::vector<uint8_t> kPayload(kPayloadMax + 8192, 'p');
  std::span<const uint8_t> rest(data, size_bytes);
  for (size_t i = 0; i < kRequestsMax && rest.size() >= 4; ++i) {
    const uint32_t opcode = kOpcodes[rest[0] % std::size(kOpcodes)];
    const uint64_t inode = kInodes[rest[1] % std::size(kInodes)];
    // In sectors and a little more or less, up to more than a slot holds.
    size_t payload_bytes = std::min<size_t>(rest[2] * 512U + rest[3] % 3, kPayload.size());
    rest = rest.subspan(4);
    const size_t given = std::min(rest.size(), kArgumentBytes);
    session.argument().fill(0);
    std::copy_n(rest.begin(), given, session.argument().begin());
    rest = rest.subspan(given);

    std::span<const uint8_t> after;
    std::array<uint8_t, 8> name = {'d', 'i', 's', 'k'};
    if (opcode == FUSE_WRITE) after = std::span(kPayload).first(payload_bytes);
    if (opcode == FUSE_LOOKUP) {
      if (given > 0) name[4] = session.argument()[0];
      after = name;
    }
    const int error = session.ask(opcode, inode, argument_bytes_of(opcode), after);
    const bool of_the_disk = opcode == FUSE_READ || opcode == FUSE_WRITE || opcode == FUSE_FSYNC ||
                             opcode == FUSE_FALLOCATE;
    if (of_the_disk && inode != kInodes[0]) {
      require(error != 0);
      elsewhere.count();
    } else {
      count(opcode, error == 0);
    }
    if (opcode == FUSE_READ && error == 0) {
      struct fuse_read_in in = {};
      std::memcpy(&in, session.argument().data(), sizeof(in));
      require(session.answer_bytes() == in.size && in.offset <= kDiskBytes - in.size);
    }
    if (opcode == FUSE_WRITE && error == 0) {
      struct fuse_write_in in = {};
      std::memcpy(&in, session.argument().data(), sizeof(in));
      require(in.size == payload_bytes && in.offset <= kDiskBytes - in.size);
    }
    require(session.idle());
  }
  return 0;
}
