#include "cli/node.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <future>

#include "base/linux_host.h"
#include "cli/key_file.h"
#include "cli/metrics/metrics_server.h"
#include "cli/node_state.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using base::Status;
using base::Task;
using nlohmann::json;

namespace {

constexpr uint64_t kPortRetryNs = 50 * base::kMillisecond;

HcaOptions hca_options(const NodeOptions& options) {
  HcaOptions hcas;
  hcas.device = options.device;
  hcas.listen_tcp = options.serve && options.serve->listen_tcp;
  hcas.tcp_within_host = options.tcp_within_host;
  return hcas;
}

void log_what_is_missing(base::Logger& log, const std::vector<bnbd::IoProcessStep>& steps) {
  for (const bnbd::IoProcessStep& step : steps)
    if (!step.done)
      log.warning("a device of this machine may hang when memory is short; not done: {}: {}",
                  step.name, step.detail);
}

}  // namespace

NodeState::NodeState(base::Host& host, base::Reactor& reactor, Reactors reactors, Hcas& hcas,
                     NodeOptions options, std::vector<bnbd::IoProcessStep> io_process)
    : host_(host),
      reactor_(reactor),
      reactors_(std::move(reactors)),
      hcas_(hcas),
      options_(std::move(options)),
      io_process_(std::move(io_process)),
      nbd_gone_(reactor),
      server_gone_(reactor),
      path_call_ended_(reactor),
      wanted_changed_(reactor) {
  log_what_is_missing(reactor_.log(), io_process_);
  hcas_.on_link_down([this](std::span<const vhca::Device* const> adapter, uint8_t port) {
    for (const SessionPtr& shared : sessions_)
      if (shared->session) shared->session->link_down(adapter, port);
  });
}

NodeState::~NodeState() {
  hcas_.on_link_down(nullptr);
}

/// All but the server's own; the device of its first address.
Result<vhca::Device*> NodeState::server_options(bnbd::ExportServerOptions& server) {
  const ServeOptions& serve = *options_.serve;
  server.root = serve.root;
  server.read_only = serve.read_only;
  server.block_devices = serve.block_devices;
  for (const SyntheticExport& one : serve.memory)
    server.named.push_back(
        {bnbd::NamedExport::Kind::kMemory, one.name, one.size_bytes, serve.huge_pages});
  for (const SyntheticExport& one : serve.null)
    server.named.push_back(
        {bnbd::NamedExport::Kind::kNull, one.name, one.size_bytes, /*huge_pages=*/false});
  std::vector<vhca::Address> listen{serve.listen};
  listen.insert(listen.end(), serve.listen_further.begin(), serve.listen_further.end());
  BRAID_TRY(std::vector<trs::ServerEndpoint> endpoints, hcas_.endpoints(listen));
  server.transport.listen = endpoints.front().listen;
  server.transport.endpoints.assign(endpoints.begin() + 1, endpoints.end());
  BRAID_TRY(server.transport.reactors, reactors_(std::max(serve.reactors, 1U)));
  server.transport.queue_depth = serve.queue_depth;
  server.transport.max_io_bytes = serve.max_io_bytes;
  if (!serve.keys_file.empty()) {
    BRAID_TRY(server.transport.keys, read_keys(serve.keys_file));
    if (server.transport.keys->size() == 0)
      reactor_.log().warning("key file \"{}\" has no key: nobody is let in", serve.keys_file);
  }
  server.transport.guard = serve.chunk_guard;
  return endpoints.front().device;
}

Task<Status> NodeState::listen(vhca::Device& first, bnbd::ExportServerOptions server) {
  const uint64_t until_ns = reactor_.now_ns() + options_.port_patience_ns;
  for (;;) {
    auto created = bnbd::ExportServer::create(first, server);
    if (created.ok()) {
      server_ = std::move(*created);
      co_return Status();
    }
    if (created.code() != Errc::kExists || reactor_.now_ns() >= until_ns) co_return created.error();
    if (options_.port_taken) options_.port_taken();
    co_await reactor_.sleep_ns(kPortRetryNs);
  }
}

Task<Status> NodeState::start_server() {
  const ServeOptions& serve = *options_.serve;
  bnbd::ExportServerOptions server;
  BRAID_CO_TRY(vhca::Device* const first, server_options(server));
  Task<Status> listening = listen(*first, std::move(server));
  BRAID_CO_CHECK(co_await std::move(listening));
  for (const vhca::Address& address : server_->addresses()) {
    if (!hcas_.soft() || !serve.listen_tcp || is_loopback(address.ip) || !serve.keys_file.empty())
      continue;
    reactor_.log().warning(
        "without --keys nobody is authenticated: whoever can reach {} can use all exports",
        address_text(address));
  }
  co_return Status();
}

Task<Result<json>> NodeState::call(std::string method, json params, CallerGone gone) {
  if (method == "status") co_return co_await status(std::move(params));
  if (method == "alive") co_return json::object();
  if (method == "map") co_return co_await map(std::move(params), std::move(gone));
  if (method == "unmap") co_return co_await unmap(std::move(params), std::move(gone));
  if (method == "remap") co_return co_await remap(std::move(params));
  if (method == "path") co_return co_await path_call(std::move(params));
  if (method == "close") co_return close_exports(params);
  if (method == "resize") co_return co_await resize_export(std::move(params));
  if (method == "reload_keys") co_return co_await reload_keys();
  co_return make_error(
      Errc::kNotSupported,
      "unknown method \"{}\": want status, alive, sample, map, unmap, remap, path, close, "
      "resize or reload_keys",
      method);
}

namespace {

Status check_root(const std::string& text) {
  BRAID_TRY(const bnbd::ExportRoot parsed, bnbd::parse_export_root(text));
  const std::string& root = parsed.folder;
  if (root.empty()) return {};
  struct stat found {};
  if (::stat(root.c_str(), &found) != 0)
    return base::sys_error(errno, fmt::format("export root \"{}\"", root));
  if (!S_ISDIR(found.st_mode))
    return make_error(Errc::kInvalid, "export root \"{}\" is no directory", root);
  return {};
}

unsigned processors_allowed() {
  cpu_set_t set;
  // The call fails on machines with more than 1024: then there are enough for all reactors.
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return kReactorsMax;
  return static_cast<unsigned>(CPU_COUNT(&set));
}

class NodeImpl final : public Node {
 public:
  ~NodeImpl() override {
    control_.reset();  // no more calls
    metrics_.reset();
    if (thread_) end_by_force();
    for (auto& reactor : reactors_) reactor->stop();
    thread_.reset();  // joins
    further_threads_.clear();
    state_.reset();
    hcas_.reset();
    reactors_.clear();
  }

  Status start(NodeOptions options) {
    if (options.serve) BRAID_CHECK(check_root(options.serve->root));
    // Before anything that others can see: a second node of the name must not serve for a moment.
    BRAID_TRY(control_, ControlServer::claim(options.name));
    std::vector<bnbd::IoProcessStep> io_process;
    if (options.io_process) io_process = bnbd::become_io_process();
    base::LinuxHostOptions host_options;
    host_options.log_name = options.name;
    host_options.sleeps_at_once = options.poll_budget_ns == 0;
    BRAID_TRY(host_, base::create_linux_host(host_options));
    poll_budget_ns_ = options.poll_budget_ns;
    if (options.processors == 0) options.processors = processors_allowed();
    BRAID_CHECK(make_reactor());
    reactor_ = reactors_.front().get();
    // Until the threads run, this one stands in for them.
    BRAID_TRY(hcas_, Hcas::open(*host_, *reactor_, hca_options(options)));
    const std::optional<MetricsOptions> metrics = options.metrics;
    const NodeState::Reactors some = [this](unsigned count) { return reactors(count); };
    state_ = std::make_unique<NodeState>(*host_, *reactor_, some, *hcas_, std::move(options),
                                         std::move(io_process));
    if (metrics) BRAID_CHECK(start_metrics(*metrics));
    if (state_->wants_server()) BRAID_CHECK(reactor_->run_until_done(state_->start_server()));
    if (state_->wants_nbd()) BRAID_CHECK(reactor_->run_until_done(state_->start_nbd()));
    // The home's last: the node ends by it.
    BRAID_TRY(thread_, start_thread("braid-io", *reactor_));
    reactor_->post([this] { state_->map_wanted(); });
    return control_->serve([this](std::shared_ptr<ControlCall> call) { take(std::move(call)); });
  }

  Result<json> call(std::string_view method, const json& params) override {
    if (method == "sample") return call_sample(params);
    return on_reactor<Result<json>>([this, method = std::string(method), params] {
      return state_->call(method, params, CallerGone());
    });
  }

  void sample(std::function<void(NodeSample)> done) override {
    reactor_->post([this, done = std::move(done)] { reactor_->spawn(tell_sample(*state_, done)); });
  }

  void stop(bool force, std::function<void(const Status&)> done) override {
    reactor_->post([this, force, done = std::move(done)] {
      reactor_->spawn(tell(state_->stop(force), done));
    });
  }

  void look_alive(std::function<void()> done) override {
    reactor_->post([this, done = std::move(done)] { ask_next(1, done); });
  }

 private:
  /// On the home's thread: asks the reactor of that number, then those after it.
  void ask_next(size_t number, const std::function<void()>& done) {
    if (number >= reactors_.size()) return done();
    reactors_[number]->post([this, number, done] {
      reactor_->post([this, number, done] { ask_next(number + 1, done); });
    });
  }
  Status make_reactor() {
    base::Reactor::Options options;
    options.name = reactors_.empty() ? "io" : fmt::format("io{}", reactors_.size());
    options.poll_budget_ns = poll_budget_ns_;
    BRAID_TRY(auto reactor, base::Reactor::create(*host_, options));
    reactors_.push_back(std::move(reactor));
    return {};
  }
  Result<std::unique_ptr<base::Thread>> start_thread(std::string name, base::Reactor& reactor) {
    return host_->start_thread(std::move(name), [&reactor] {
      bnbd::prefault_stack();
      reactor.run();
    });
  }
  /// Before the home runs, or on its thread. Those that are missing run at once.
  Result<std::vector<base::Reactor*>> reactors(unsigned count) {
    while (reactors_.size() < count) {
      BRAID_CHECK(make_reactor());
      auto thread =
          start_thread(fmt::format("braid-{}", reactors_.back()->name()), *reactors_.back());
      if (!thread.ok()) {
        reactors_.pop_back();
        return thread.error();
      }
      further_threads_.push_back(std::move(*thread));
    }
    std::vector<base::Reactor*> first;
    for (unsigned i = 0; i < count; ++i) first.push_back(reactors_[i].get());
    return first;
  }
  /// Others reach it as soon as the reactor runs; until then they wait.
  Status start_metrics(const MetricsOptions& options) {
    BRAID_TRY(metrics_, MetricsServer::start(options, [this](std::function<void(NodeSample)> done) {
                sample(std::move(done));
              }));
    state_->set_metrics_url(metrics_->url());
    if (!is_loopback(options.listen.ip))
      host_->log().warning("whoever can reach {} reads this node's metrics: there is no key to it",
                           metrics_->url());
    return {};
  }
  void end_by_force() {
    const Status ended = on_reactor<Status>([this] { return state_->stop(/*force=*/true); });
    if (!ended.ok()) host_->log().warning("{}", ended.error().message());
    if (ended.code() == Errc::kTimedOut) std::_Exit(EXIT_FAILURE);
  }
  Result<json> call_sample(const json& params) {
    auto outcome = std::make_shared<std::promise<Result<json>>>();
    std::future<Result<json>> value = outcome->get_future();
    auto answer = [outcome](Result<json> result) { outcome->set_value(std::move(result)); };
    reactor_->post([this, params, answer] { reactor_->spawn(state_->sample_for(params, answer)); });
    return value.get();
  }
  /// A call from the control socket; on its thread.
  void take(std::shared_ptr<ControlCall> call) {
    auto params = parse_json(call->rpc().params);
    if (!params.ok()) return call->answer(params.error());
    reactor_->post([this, call = std::move(call), params = std::move(*params)] {
      if (call->rpc().method == "sample") {
        auto answer = [call](Result<json> result) { call->answer(std::move(result)); };
        return reactor_->spawn(state_->sample_for(params, std::move(answer)));
      }
      const CallerGone gone = [call] { return call->caller_gone(); };
      reactor_->spawn(answer(state_->call(call->rpc().method, params, gone), call));
    });
  }
  static Task<void> tell(Task<Status> work, std::function<void(const Status&)> done) {
    const Status outcome = co_await std::move(work);
    done(outcome);
  }
  static Task<void> tell_sample(NodeState& state, std::function<void(NodeSample)> done) {
    NodeSample sampled = co_await state.sample(SampleRange());
    done(std::move(sampled));
  }
  static Task<void> answer(Task<Result<json>> work, std::shared_ptr<ControlCall> call) {
    auto result = co_await std::move(work);
    call->answer(std::move(result));
  }
  /// Runs the task that `make` gives on the reactor, and waits for its value.
  template <typename T, typename Make>
  T on_reactor(Make make) {
    auto outcome = std::make_shared<std::promise<T>>();
    std::future<T> value = outcome->get_future();
    reactor_->post(
        [this, outcome, make = std::move(make)] { reactor_->spawn(keep(make(), outcome)); });
    return value.get();
  }
  template <typename T>
  static Task<void> keep(Task<T> task, std::shared_ptr<std::promise<T>> outcome) {
    outcome->set_value(co_await std::move(task));
  }

  std::unique_ptr<base::Host> host_;
  uint64_t poll_budget_ns_ = 0;
  std::vector<std::unique_ptr<base::Reactor>> reactors_;  // the home first
  base::Reactor* reactor_ = nullptr;                      // the home
  std::unique_ptr<Hcas> hcas_;
  std::unique_ptr<NodeState> state_;
  std::unique_ptr<base::Thread> thread_;  // of the home
  std::vector<std::unique_ptr<base::Thread>> further_threads_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace

Result<std::unique_ptr<Node>> Node::start(NodeOptions options) {
  auto node = std::make_unique<NodeImpl>();
  BRAID_CHECK(node->start(std::move(options)));
  return std::unique_ptr<Node>(std::move(node));
}

}  // namespace braid::cli
