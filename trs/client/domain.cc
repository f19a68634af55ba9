#include "trs/client/domain.h"

namespace braid::trs {

base::Result<std::unique_ptr<Domain>> Domain::create(std::span<vhca::Device* const> devices) {
  auto domain = std::make_unique<client::DomainImpl>();
  for (vhca::Device* device : devices) BRAID_CHECK(domain->add_device(*device));
  return std::unique_ptr<Domain>(std::move(domain));
}

base::Result<std::unique_ptr<Domain>> Domain::create(vhca::Device& device) {
  vhca::Device* const one = &device;
  return create(std::span(&one, 1));
}

namespace client {

base::Result<size_t> DomainImpl::add_device(vhca::Device& device) {
  const size_t index = devices();
  if (index == kDevicesMax) {
    return base::make_error(base::Errc::kNoMemory, "device '{}' is one too many: {} are the most",
                            device.info().name, kDevicesMax);
  }
  Member member;
  member.device = &device;
  BRAID_TRY(member.pd, device.alloc_pd());
  const std::lock_guard lock(mutex_);
  for (Memory* memory = memories_.front(); memory != nullptr; memory = memories_.next(*memory)) {
    auto made = member.pd->reg_mr(memory->address, memory->length_bytes, memory->access);
    if (!made.ok()) {
      for (Memory* done = memories_.front(); done != memory; done = memories_.next(*done)) {
        done->others_[index].reset();
      }
      return made.error();
    }
    memory->others_[index] = std::move(*made);
  }
  devices_[index] = std::move(member);
  count_.store(index + 1, std::memory_order_release);
  return index;
}

base::Result<std::unique_ptr<vhca::Mr>> DomainImpl::register_memory(std::byte* address,
                                                                    uint64_t length_bytes,
                                                                    int access) {
  auto memory = std::make_unique<Memory>();
  memory->address = address;
  memory->length_bytes = length_bytes;
  memory->access = access;
  for (size_t done = 0;;) {
    // It takes its time, so not under the lock; a device may come meanwhile.
    BRAID_CHECK(register_with_rest(*memory, done));
    const std::lock_guard lock(mutex_);
    if (done < devices()) continue;
    memories_.push_back(*memory);
    break;
  }
  const vhca::Mr& first = *memory->others_[0];
  memory->lkey = first.lkey;
  memory->rkey = first.rkey;
  return std::unique_ptr<vhca::Mr>(std::move(memory));
}

base::Status DomainImpl::register_with_rest(Memory& memory, size_t& done) const {
  for (; done < devices(); ++done) {
    BRAID_TRY(memory.others_[done],
              devices_[done].pd->reg_mr(memory.address, memory.length_bytes, memory.access));
  }
  return {};
}

void DomainImpl::release(std::unique_ptr<vhca::Mr> registered, std::shared_ptr<void> memory) {
  auto& all = static_cast<Memory&>(*registered);
  {
    const std::lock_guard lock(mutex_);
    all.unlink();
  }
  for (size_t i = 0; i < devices(); ++i) {
    if (all.others_[i]) devices_[i].pd->dereg_mr(std::move(all.others_[i]), memory);
  }
}

}  // namespace client
}  // namespace braid::trs
