// SimMachine: a computer of a simulated world: disks, ports (see SimFabric), processes, a boot.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/sim/disk.h"

namespace braid::base::sim {

class SimHost;
class SimWorld;

class SimMachine {
 public:
  SimMachine(SimWorld& world, std::string name);
  ~SimMachine();
  SimMachine(const SimMachine&) = delete;

  SimWorld& world() const { return world_; }
  const std::string& name() const { return name_; }
  const std::string& boot_id() const { return boot_id_; }
  bool powered() const { return powered_; }

  /// A file or disk at an absolute path. It outlives processes and power losses.
  SimDisk& add_disk(const std::string& path, const SimDiskOptions& options);
  /// Another file takes the path of one that nobody has open. The old one stays an object, for what
  /// is still on its way to it.
  SimDisk& replace_disk(const std::string& path, const SimDiskOptions& options);
  /// Null if there is none.
  SimDisk* disk(const std::string& path);

  /// A new process with nothing in it yet: give it a program by SimHost::run. The object stays
  /// until the world ends, also after its death.
  SimHost& start_process(const std::string& name);
  /// All that there ever were.
  const std::vector<std::unique_ptr<SimHost>>& processes() const { return processes_; }

  /// Every process dies without a word to anybody, the disks lose what was not durable, the ports
  /// are silent. What a process had in flight to a disk may be done, torn or lost.
  void power_loss();
  /// With a new boot id. Processes must be started anew.
  void power_on();

 private:
  void new_boot();

  SimWorld& world_;
  const std::string name_;
  std::string boot_id_;
  bool powered_ = true;
  std::map<std::string, std::unique_ptr<SimDisk>> disks_;
  std::vector<std::unique_ptr<SimDisk>> replaced_disks_;
  std::vector<std::unique_ptr<SimHost>> processes_;
};

}  // namespace braid::base::sim
