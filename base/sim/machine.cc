#include "base/sim/machine.h"

#include <fmt/format.h>

#include "base/sim/host.h"
#include "base/sim/world.h"

namespace braid::base::sim {

SimMachine::SimMachine(SimWorld& world, std::string name) : world_(world), name_(std::move(name)) {
  new_boot();
}

SimMachine::~SimMachine() {
  for (auto& process : processes_)
    if (!process->dead()) process->kill(true);
}

SimDisk& SimMachine::add_disk(const std::string& path, const SimDiskOptions& options) {
  const uint32_t id = world_.next_subject();
  auto disk = std::make_unique<SimDisk>(fmt::format("file:{}:{}", name_, id), options,
                                        world_.random().fork());
  disk->set_id(id);
  const auto [at, added] = disks_.emplace(path, std::move(disk));
  BRAID_ASSERT(added);
  return *at->second;
}

SimDisk& SimMachine::replace_disk(const std::string& path, const SimDiskOptions& options) {
  auto old = disks_.extract(path);
  BRAID_ASSERT(!old.empty());
  replaced_disks_.push_back(std::move(old.mapped()));
  return add_disk(path, options);
}

SimDisk* SimMachine::disk(const std::string& path) {
  const auto found = disks_.find(path);
  return found == disks_.end() ? nullptr : found->second.get();
}

SimHost& SimMachine::start_process(const std::string& name) {
  BRAID_ASSERT(powered_);
  processes_.push_back(std::make_unique<SimHost>(*this, name));
  return *processes_.back();
}

void SimMachine::power_loss() {
  BRAID_ASSERT(powered_);
  powered_ = false;
  ++world_.counters().power_losses;
  for (auto& process : processes_)
    if (!process->dead()) process->kill(true);
  for (auto& [path, disk] : disks_) disk->power_loss();
  for (auto& disk : replaced_disks_) disk->power_loss();
}

void SimMachine::power_on() {
  BRAID_ASSERT(!powered_);
  powered_ = true;
  new_boot();
}

void SimMachine::new_boot() {
  const uint64_t high = world_.random().next();
  const uint64_t low = world_.random().next();
  boot_id_ = fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xffff,
                         high & 0xfff, 0x8000 | (low >> 48 & 0x3fff), low & 0xffffffffffff);
}

}  // namespace braid::base::sim
