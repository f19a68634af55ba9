#include "bnbd/kernel_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "bnbd/frontend/fuse_loop_device.h"
#include "bnbd/frontend/nbd_device.h"

namespace braid::bnbd {

using base::Errc;

namespace {

constexpr unsigned kSlotsMax = 256;
constexpr uint32_t kKernelPageBytes = 4096;

base::Status check(const KernelDeviceOptions& options, const BlockInfo& info) {
  BRAID_CHECK(check_device_name(options.name));
  if (options.slots == 0 || options.slots > kSlotsMax) {
    return base::make_error(Errc::kInvalid, "{} slots: 1 to {}", options.slots, kSlotsMax);
  }
  if (options.nbd_connections == 0 || options.nbd_connections > kNbdConnectionsMax) {
    return base::make_error(Errc::kInvalid, "{} nbd connections: 1 to {}", options.nbd_connections,
                            kNbdConnectionsMax);
  }
  const uint32_t block = info.logical_block_bytes;
  if (!std::has_single_bit(block) || block < 512 || block > kKernelPageBytes) {
    return base::make_error(Errc::kNotSupported,
                            "logical block of {} bytes: the kernel's devices have a power of two "
                            "from 512 to {}",
                            block, kKernelPageBytes);
  }
  if (info.size_bytes == 0 || info.size_bytes % block != 0 || info.size_bytes > INT64_MAX) {
    return base::make_error(Errc::kNotSupported,
                            "a device of {} bytes: a positive multiple of its logical block of {}",
                            info.size_bytes, block);
  }
  return base::ok_status();
}

}  // namespace

base::Status check_device_name(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (plain && !name.empty() && name.size() <= kDeviceNameMax && name.front() != '.') return {};
  return base::make_error(Errc::kInvalid,
                          "device name \"{}\": want 1 to {} letters, digits, '_', '-' or, but not "
                          "first, '.'",
                          name, kDeviceNameMax);
}

std::string_view to_string(KernelDeviceKind kind) {
  switch (kind) {
    case KernelDeviceKind::kAuto:
      return "auto";
    case KernelDeviceKind::kNbd:
      return "nbd";
    case KernelDeviceKind::kFuse:
      return "fuse";
    case KernelDeviceKind::kNbdServer:
      return "nbd-server";
  }
  return "?";
}

base::Task<base::Result<std::unique_ptr<KernelDevice>>> attach(base::Reactor& reactor,
                                                               BlockDevice& device,
                                                               KernelDeviceOptions options) {
  if (options.kind == KernelDeviceKind::kNbdServer) {
    co_return base::make_error(Errc::kNotSupported, "an NBD export is no device of the kernel");
  }
  BRAID_CO_CHECK(check(options, device.info()));
  std::string why = "as asked for";
  if (options.kind != KernelDeviceKind::kFuse) {
    auto nbd = co_await attach_nbd(reactor, device, options);
    if (nbd.ok() || options.kind == KernelDeviceKind::kNbd) co_return std::move(nbd);
    why = "because " + nbd.error().message();
  }
  co_return co_await attach_fuse_loop(reactor, device, options, why);
}

}  // namespace braid::bnbd
