// The parts of a node that live on its reactor (private to cli/node*.cc).
//
// Threads: the reactor's, but for NodeImpl's public calls.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "base/timer.h"
#include "bnbd/filters.h"
#include "bnbd/io_process.h"
#include "bnbd/kernel_device.h"
#include "bnbd/nbd_service.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "cli/control.h"
#include "cli/hcas.h"
#include "cli/metrics/sample.h"
#include "cli/node.h"
#include "cli/target.h"

namespace braid::cli {

/// A path as its operator named it.
struct SharedPath {
  PathSpec spec;
  size_t id = 0;                   // of trs::PathStatus
  bool stranger = false;           // taken down, as another server is there
  uint64_t stranger_since_ns = 0;  // seen to be one since then; 0: not
};
using Paths = std::vector<PathSpec>;

/// What is fixed when a session opens: devices that ask for the same share one.
struct SessionKind {
  unsigned reactors = 1;     // that carry its requests
  bool guard_reads = false;  // bnbd::RemoteSessionOptions
  bool operator==(const SessionKind&) const = default;
};

/// A session to one server, shared by the devices from there.
struct SharedSession {
  SharedSession(std::string first_server, trs::KeyPtr proof, SessionKind as, base::Reactor& reactor)
      : server(std::move(first_server)), key(std::move(proof)), kind(as), tried(reactor) {}
  bool proves(const trs::KeyPtr& other) const {
    if (!key || !other) return !key && !other;
    return key->name() == other->name() && key->same_secret(*other);
  }
  uint64_t number = 0;       // of those that the node has had
  const std::string server;  // "ip:port" of its first path
  const trs::KeyPtr key;     // null: none
  const SessionKind kind;
  std::vector<SharedPath> paths;
  std::unique_ptr<bnbd::RemoteSession> session;  // null while it is being opened
  unsigned users = 0;                            // devices, and maps under way
  bool watched = false;                          // its paths are: it has several
  base::Status opened;                           // once `tried` was notified
  base::Signal tried;
};
using SessionPtr = std::shared_ptr<SharedSession>;

enum class DevicePhase : uint8_t {
  kMapping,
  kMapped,
  kUnmapping,
  kGone,  // in no list any more
};

/// Whether whoever asked for something still waits for it; empty: always.
using CallerGone = std::function<bool()>;

/// A remote device that the kernel has, or is to have, or had. One coroutine at a time takes it
/// through its phases; what others may do meanwhile is to ask for force.
struct MappedDevice {
  MappedDevice(base::Reactor& reactor, base::Timer::Callback patience_tick, void* state)
      : changed(reactor), node(state), patience(patience_tick, this) {}
  std::string name;
  std::string export_name;
  std::string target;  // "ip:port[,ip:port...]/export"; until a session is there, with the name as
                       // it was given
  std::string path;    // "/dev/loop3"; empty until the kernel has had it
  trs::KeyPtr key;     // that its session is to prove; null: none
  SessionKind kind;    // that its session is to be of
  SessionPtr session;
  std::vector<bnbd::FilterSpec> filter_specs;  // the first is nearest to the kernel
  std::unique_ptr<bnbd::RemoteDevice> remote;
  std::unique_ptr<bnbd::FilterStack> filters;  // null: none
  std::unique_ptr<bnbd::KernelDevice> kernel;
  bnbd::BlockDevice& top() const {
    return filters ? filters->top() : static_cast<bnbd::BlockDevice&>(*remote);
  }
  DevicePhase phase = DevicePhase::kMapping;
  uint64_t since_ns = 0;   // in this phase
  CallerGone mapper_gone;  // while it is being mapped
  bool force = false;    // the present unmap is by force, or has become so; or mapping is given up
  base::Status outcome;  // of the last unmap
  std::string lost;      // what it had to give up; empty: nothing
  // remote->close(), once: requests fail from then on.
  bool closing = false;
  bool closed = false;
  base::Signal changed;       // phase, closed
  uint64_t kernel_bytes = 0;  // the size that the kernel's device has
  bool following = false;     // the kernel is being told of another
  unsigned calls = 0;         // that wait for something of `remote` or `filters`
  std::string size_trouble;   // why the kernel has another than the remote device
  void* const node;
  uint64_t patience_ends_ns = 0;  // of an unmap by force
  uint64_t answered = 0;          // requests of the kernel, when that patience began
  base::Timer patience;
};
using DevicePtr = std::shared_ptr<MappedDevice>;

/// A device that is to be mapped as soon as its server lets it be.
struct WantedDevice {
  explicit WantedDevice(WantedMap map) : what(std::move(map)) {}
  const WantedMap what;
  bool given_up = false;
  uint64_t since_ns = 0;
  uint64_t attempts = 0;  // that failed
  std::string why;        // the last of them did; empty: none has yet
};
using WantedPtr = std::shared_ptr<WantedDevice>;
/// A device of this process that NBD clients have.
struct LocalExport {
  std::string name;
  std::string target;   // "memory:1G"
  std::string backend;  // "file", "memory", "null"
  std::unique_ptr<bnbd::BlockDevice> device;
  std::unique_ptr<bnbd::KernelDevice> front;
};

/// What a node does, on its reactor.
class NodeState {
 public:
  /// The first so many reactors of the node, the home first; it starts those that are missing.
  using Reactors = std::function<base::Result<std::vector<base::Reactor*>>(unsigned count)>;
  NodeState(base::Host& host, base::Reactor& reactor, Reactors reactors, Hcas& hcas,
            NodeOptions options, std::vector<bnbd::IoProcessStep> io_process);
  ~NodeState();
  NodeState(const NodeState&) = delete;
  NodeState& operator=(const NodeState&) = delete;

  bool wants_server() const { return options_.serve.has_value(); }
  bool wants_nbd() const { return options_.nbd.has_value(); }
  /// The node outlives both.
  base::Task<base::Status> start_server();
  /// Begins to map what is wanted; returns at once.
  void map_wanted();
  base::Task<base::Status> start_nbd();
  base::Task<base::Result<nlohmann::json>> call(std::string method, nlohmann::json params,
                                                CallerGone gone);
  base::Task<base::Status> stop(bool force);

  // node_sample.cc
  base::Task<NodeSample> sample(SampleRange range);
  /// The call "sample": its answer is made and given on a worker thread.
  base::Task<void> sample_for(nlohmann::json params,
                              std::function<void(base::Result<nlohmann::json>)> answer);
  /// For "status"; empty: there is none. Before the reactor runs.
  void set_metrics_url(std::string url) { metrics_url_ = std::move(url); }

 private:
  SessionSample sample_session(const SharedSession& shared) const;
  std::optional<DeviceSample> sample_named(const std::string& name) const;
  void sample_rest(NodeSample& sample) const;

  // node.cc
  base::Result<vhca::Device*> server_options(bnbd::ExportServerOptions& server);
  base::Task<base::Status> listen(vhca::Device& first, bnbd::ExportServerOptions server);

  // node_nbd.cc
  base::Task<base::Result<std::unique_ptr<bnbd::BlockDevice>>> open_local(LocalNbdExport what);
  base::Task<base::Status> add_local(LocalNbdExport what);
  base::Task<base::Result<std::unique_ptr<bnbd::KernelDevice>>> give_to_nbd_clients(
      DevicePtr device);
  base::Task<void> stop_nbd(bool force);
  nlohmann::json nbd_status() const;
  nlohmann::json local_status(const LocalExport& local) const;
  const LocalExport* local_named(const std::string& name) const;

  // node_map.cc
  base::Task<base::Result<nlohmann::json>> map(nlohmann::json params, CallerGone gone);
  base::Status may_map(const std::string& name) const;
  base::Task<base::Result<Paths>> addresses_of(PathSpec path);
  static base::Error several_addresses(const PathSpec& path, const Paths& found);
  base::Task<base::Result<std::vector<Paths>>> ways_to(Paths paths);
  base::Task<base::Result<trs::KeyPtr>> key_for(std::string path);
  base::Task<bool> offload_within(std::function<void()> work, uint64_t patience_ns);
  base::Task<base::Status> read_in_time(std::string path, std::function<void()> work);
  base::Task<base::Status> join_one_of(DevicePtr device, std::vector<Paths> ways);
  base::Status given_up(const MappedDevice& device) const;
  base::Task<base::Status> give_to_kernel(DevicePtr device, std::vector<Paths> ways,
                                          bnbd::RemoteDeviceOptions options,
                                          bnbd::KernelDeviceKind kind);
  base::Task<base::Status> put_filters_on(DevicePtr device);
  base::Task<void> take_back(DevicePtr device, const base::Error& why);

  // node_paths.cc
  base::Task<base::Result<SessionPtr>> join_session(Paths paths, trs::KeyPtr key, SessionKind kind);
  base::Status options_for(const Paths& paths, SessionKind kind,
                           bnbd::RemoteSessionOptions& options, vhca::Device*& first);
  base::Task<base::Result<SessionPtr>> open_session(Paths paths, trs::KeyPtr key, SessionKind kind);
  base::Task<void> leave_session(SessionPtr session);
  base::Task<base::Status> fits(SessionPtr shared, size_t id, uint64_t patience_ns);
  base::Task<base::Status> leads_there(SessionPtr shared, Paths paths);
  void watch(const SessionPtr& shared);
  base::Task<void> watch_paths(std::weak_ptr<SharedSession> session);
  void look_for_stranger(SharedSession& shared, SharedPath& path);
  base::Task<base::Result<size_t>> add_path(SessionPtr shared, PathSpec path, bool must_connect);
  base::Task<base::Status> add_missing(SessionPtr shared, Paths paths);
  static base::Task<base::Status> remove_path(SessionPtr shared, size_t id);
  base::Result<SessionPtr> session_named(const std::string& name) const;
  static base::Result<size_t> path_named(const SharedSession& shared, const std::string& name);
  base::Task<base::Result<nlohmann::json>> path_call(nlohmann::json params);
  base::Task<base::Status> change_path(SessionPtr shared, nlohmann::json params);
  static base::Status may_lose(const SharedSession& shared, size_t id, bool for_good, bool force);

  // node_operator.cc
  base::Task<base::Result<nlohmann::json>> remap(nlohmann::json params);
  base::Task<base::Status> remap_with_path(DevicePtr device);
  base::Result<nlohmann::json> close_exports(const nlohmann::json& params);
  base::Task<base::Result<nlohmann::json>> resize_export(nlohmann::json params);
  base::Status check_serves() const;
  base::Task<base::Result<nlohmann::json>> reload_keys();
  void watch_size(const DevicePtr& device);
  base::Task<void> follow_size(DevicePtr device);

  // node_unmap.cc
  base::Task<base::Result<nlohmann::json>> unmap(nlohmann::json params, CallerGone gone);
  base::Task<base::Status> take_away(DevicePtr device, bool force);
  base::Task<void> take_away_apart(DevicePtr device, bool force);
  base::Result<bnbd::DetachMode> may_unmap(const MappedDevice& device) const;
  void insist(const DevicePtr& device);
  void give_up_mapping(const DevicePtr& device);
  static constexpr uint64_t kPatienceTickNs = 100 * base::kMillisecond;
  void begin_close(const DevicePtr& device);
  base::Task<void> close_remote(DevicePtr device);
  static base::Task<void> let_filters_go(DevicePtr device);
  base::Task<void> dismantle(DevicePtr device);
  base::Task<base::Status> stop_server();
  void have_patience(MappedDevice& device);
  void lose_patience(const DevicePtr& device);
  static void patience_tick(base::Timer& timer);
  void set_phase(MappedDevice& device, DevicePhase phase);
  DevicePtr device_named(const std::string& name) const;
  std::string phase_text(const MappedDevice& device) const;  // "is being unmapped since 3 s"

  // node_wanted.cc
  base::Task<void> keep_wanting(WantedPtr wanted);
  base::Task<bool> wanting_ends();
  void tell_wanted() const;
  WantedPtr wanted_named(const std::string& name) const;
  nlohmann::json wanted_status(const WantedDevice& wanted) const;

  // node_status.cc
  /// In several turns, so that I/O goes on. `params`: "only", a name, of which alone devices and
  /// exports are told.
  base::Task<base::Result<nlohmann::json>> status(nlohmann::json params);
  nlohmann::json about() const;
  nlohmann::json unready_status(const MappedDevice& device) const;
  nlohmann::json device_status(const MappedDevice& device) const;
  nlohmann::json server_status() const;
  nlohmann::json session_list() const;  // of the server's clients
  nlohmann::json session_status(const SharedSession& shared) const;
  nlohmann::json session_with_devices(const SharedSession& shared) const;
  std::vector<std::string> io_process_texts() const;  // what a process of this kind does for itself
  std::string hca_to(const std::string& server) const;
  std::string hca_of(const SharedSession& shared) const;
  std::vector<std::string> notes() const;  // of that, what could not be done

  base::Host& host_;
  base::Reactor& reactor_;
  const Reactors reactors_;
  Hcas& hcas_;
  const NodeOptions options_;
  const std::vector<bnbd::IoProcessStep> io_process_;
  std::string metrics_url_;
  uint64_t sessions_numbered_ = 0;
  std::unique_ptr<bnbd::ExportServer> server_;
  std::unique_ptr<bnbd::NbdService> nbd_;
  std::list<LocalExport> locals_;  // of nbd_, which goes after them
  bool nbd_stopping_ = false;
  base::Signal nbd_gone_;
  bool server_stopping_ = false;
  uint64_t key_reloads_ = 0;   // begun
  uint64_t keys_set_by_ = 0;   // the number of the last that was done
  unsigned server_users_ = 0;  // calls that wait for it
  base::Signal server_gone_;
  unsigned path_calls_ = 0;  // under way
  base::Signal path_call_ended_;
  bool stopping_ = false;           // nothing is mapped any more
  bool stopping_by_force_ = false;  // for good
  // Host names that are being looked up, those included whose callers have given up. Shared with
  // the workers, which may outlive the node.
  const std::shared_ptr<std::atomic<unsigned>> look_ups_ =
      std::make_shared<std::atomic<unsigned>>(0);
  const std::shared_ptr<std::atomic<unsigned>> key_reads_ =  // likewise, of key files
      std::make_shared<std::atomic<unsigned>>(0);
  std::list<SessionPtr> sessions_;
  std::list<DevicePtr> devices_;  // in the order of mapping
  std::list<WantedPtr> wanted_;   // and not mapped yet
  bool wanting_over_ = false;     // the node was told to end
  base::Signal wanted_changed_;
};

}  // namespace braid::cli
