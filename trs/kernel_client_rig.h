// A client of Linux's making, by hand: it has no numbers, and asks for the invalidation of the keys
// of what it reads.
#pragma once

#include "trs/hostile_client_rig.h"

namespace braid::trs::testing {

class KernelClient : public HostileClient {
 protected:
  static constexpr uint32_t kDataBytes = 512;
  static constexpr uint32_t kDepth = 16;

  explicit KernelClient(size_t reactors = 1, uint32_t features = 0)
      : HostileClient({}, reactors), its_features(features) {}
  void SetUp() override {
    HostileClient::SetUp();
    target = std::move(
        *raw->pd->reg_mr(raw->memory.data(), raw->memory.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND));
    handshake(kernel_conn_req(0, 1), kernel_conn_req(1, 1));
    send_info(its_features == 0 ? 0 : 1);
    ASSERT_TRUE(until([&] {
      cid0->poll();
      return cid0->completions.size() >= 2;
    }));
    ASSERT_TRUE(wire::parse_info_rsp(raw->received(0, 24), 32 << 10, chunks).ok());
    for (size_t i = 0; i < store.bytes.size(); ++i) store.bytes[i] = std::byte(i * 7 % 251);
  }
  void TearDown() override {
    windows.clear();
    HostileClient::TearDown();
    target.reset();
  }

  /// Of the path that has this name.
  wire::ConnReq kernel_conn_req(uint16_t cid, uint8_t path) const {
    wire::ConnReq req = conn_req(cid, its_features);
    if (its_features == 0) req.braid_magic = 0u;
    req.sess_uuid.bytes.fill(path);
    return req;
  }
  static size_t place_of(uint32_t chunk) { return (64 << 10) + size_t{chunk} * kDataBytes; }
  static std::span<std::byte> data_of(RawPeer& peer, uint32_t chunk) {
    return std::span(peer.memory).subspan(place_of(chunk), kDataBytes);
  }
  std::span<std::byte> data_of(uint32_t chunk) { return data_of(*raw, chunk); }
  bool data_came(RawPeer& peer, uint32_t chunk) {
    const auto data = data_of(peer, chunk);
    return std::equal(data.begin(), data.end(), store.bytes.begin() + chunk * kDataBytes);
  }
  bool data_came(uint32_t chunk) { return data_came(*raw, chunk); }
  /// A window of connection 1 on what the read by `chunk` is to fill.
  uint32_t bind(uint32_t chunk) {
    windows.push_back(std::move(*raw->pd->alloc_mw(IBV_MW_TYPE_2)));
    vhca::SendWr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = windows.back().get();
    wr.bind_mw.rkey = ibv_inc_rkey(windows.back()->rkey);
    wr.bind_mw.bind_info.mr = target.get();
    wr.bind_mw.bind_info.addr = reinterpret_cast<uint64_t>(data_of(chunk).data());
    wr.bind_mw.bind_info.length = kDataBytes;
    wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    const vhca::SendWr* bad = nullptr;
    EXPECT_EQ(cid1->qp->post_send(&wr, &bad), 0);
    return wr.bind_mw.rkey;
  }
  /// User header and message; of the store's bytes from chunk x kDataBytes on.
  static std::vector<uint8_t> read_request(RawPeer& peer, uint32_t chunk, uint32_t key,
                                           uint16_t flags, StoreOp op = {}) {
    op.offset = uint64_t{chunk} * kDataBytes;
    wire::ReadMsg message;
    message.type = static_cast<uint16_t>(wire::MessageType::kRead);
    message.usr_len = uint16_t{sizeof(op)};
    message.flags = flags;
    message.sg_cnt = uint16_t{1};
    wire::SgDescriptor descriptor;
    descriptor.address = reinterpret_cast<uint64_t>(data_of(peer, chunk).data());
    descriptor.key = key;
    descriptor.length = kDataBytes;
    std::vector<uint8_t> bytes(sizeof(op) + sizeof(message) + sizeof(descriptor));
    std::memcpy(bytes.data(), &op, sizeof(op));
    std::memcpy(bytes.data() + sizeof(op), &message, sizeof(message));
    std::memcpy(bytes.data() + sizeof(op) + sizeof(message), &descriptor, sizeof(descriptor));
    return bytes;
  }
  /// By connection 1.
  void read(uint32_t chunk, uint32_t key, uint16_t flags, StoreOp op = {}) {
    request(*cid1, chunk, kDataBytes, read_request(*raw, chunk, key, flags, op),
            kDataBytes + sizeof(op));
  }

  const uint32_t its_features;  // 0: Linux; else an older Braid
  std::unique_ptr<vhca::Mr> target;
  std::vector<std::unique_ptr<vhca::Mw>> windows;
};

}  // namespace braid::trs::testing
