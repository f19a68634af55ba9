// `braid top`: what the nodes of this host do now, device by device.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/target.h"
#include "cli/top/looks.h"
#include "cli/top/screen.h"
#include "cli/top/terminal.h"
#include "cli/verbs/sampled.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

constexpr uint64_t kIntervalMinNs = 100 * base::kMillisecond;
constexpr uint64_t kIntervalMaxNs = 3600 * base::kSecond;
constexpr int kTopPatienceMs = 1'000;  // with a node that does not answer: it delays each look

struct TopArguments {
  std::string interval = "1s";
  uint64_t count = 0;  // 0: until it is ended
  std::string sort = "bytes";
};

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%H:%M:%S", &local)};
}

Result<uint64_t> interval_ns(const std::string& text) {
  auto parsed = parse_duration(text);
  if (!parsed.ok()) return parsed.error().with("--interval");
  if (*parsed < kIntervalMinNs || *parsed > kIntervalMaxNs)
    return make_error(Errc::kInvalid, "--interval {}: want 100ms to 1h", text);
  return *parsed;
}

class Top {
 public:
  Top(Context& context, const TopArguments& arguments, uint64_t interval)
      : context_(context),
        arguments_(arguments),
        interval_(std::chrono::nanoseconds(interval)),
        interval_s_(static_cast<double>(interval) / 1e9) {
    while (to_string(order_) != arguments.sort) order_ = next_order(order_);
  }

  /// False: whom --control names was never there.
  bool first_look() {
    next_ = Clock::now() + interval_;
    auto sampled = sample_nodes(context_, kTopPatienceMs);
    if (!sampled.ok()) {
      report(context_, sampled.error());
      return false;
    }
    keep(std::move(*sampled));
    return true;
  }

  void batch(const TopSignals& signals) {
    for (uint64_t done = 0; arguments_.count == 0 || done < arguments_.count; ++done) {
      if (signals.wait_ms(left_ms()) != 0) return;
      next_ = Clock::now() + interval_;
      keep(sample_nodes(context_, kTopPatienceMs));
      if (context_.json)
        std::cout << to_json(view_).dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
      else
        std::cout << (done == 0 ? "" : "\n") << batch_text(view_);
      if (!std::cout.flush()) return;  // its reader has gone
    }
  }

  void on(Terminal& terminal) {
    LaterSample later(context_, kTopPatienceMs);
    for (;;) {
      ScreenOptions page = page_;
      page.width = terminal.width();
      page.height = terminal.height();
      page.order = order_;
      page.color = std::getenv("NO_COLOR") == nullptr;
      const size_t room = rows_on_screen(view_, page);
      last_first_ = view_.rows.size() > room ? view_.rows.size() - room : 0;
      page.first = page_.first = std::min(page_.first, last_first_);
      terminal.show(screen_text(view_, page));
      char key = 0;
      const bool idle = page_.paused || later.under_way();
      const TerminalEvent event = terminal.wait_ms(idle ? -1 : left_ms(), later.fd(), key);
      if (event == TerminalEvent::kEnd || (event == TerminalEvent::kKey && key == 'q')) return;
      take(event, key);
      if (auto sampled = later.take(); sampled && !page_.paused) keep(std::move(*sampled));
      if (page_.paused || later.under_way() || left_ms() > 0) continue;
      next_ = Clock::now() + interval_;
      later.begin();
    }
  }

 private:
  void take(TerminalEvent event, char key) {
    if (event == TerminalEvent::kUp && page_.first > 0) --page_.first;
    if (event == TerminalEvent::kDown && page_.first < last_first_) ++page_.first;
    if (event != TerminalEvent::kKey) return;
    if (key == 'p' || key == ' ') page_.paused = !page_.paused;
    if (key == 's') {
      order_ = next_order(order_);
      sort_rows(view_.rows, order_);
    }
  }

  int left_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_ - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

  void keep(Result<SampledNodes> sampled) {
    if (sampled.ok()) return keep(std::move(*sampled));
    SampledNodes none;  // the one that was named: it may come back
    none.silent.push_back(sampled.error().with("node \"{}\"", context_.node_to_ask()));
    keep(std::move(none));
  }

  void keep(SampledNodes sampled) {
    std::vector<std::string> silent;
    for (const base::Error& why : sampled.silent) silent.push_back(why.message());
    view_ = looks_.take(std::move(sampled.nodes), std::move(silent), order_);
    view_.time = time_of_day();
    view_.interval_s = interval_s_;
  }

  Context& context_;
  const TopArguments& arguments_;
  const Clock::duration interval_;
  const double interval_s_;
  TopOrder order_ = TopOrder::kBytes;
  Looks looks_;
  TopView view_;
  ScreenOptions page_;  // paused, first
  size_t last_first_ = 0;
  Clock::time_point next_;
};

void top(Context& context, const TopArguments& arguments) {
  auto interval = interval_ns(arguments.interval);
  if (!interval.ok()) return report(context, interval.error(), kUsage);
  const TopSignals signals;
  Top shown(context, arguments, *interval);
  if (!shown.first_look()) return;
  const bool batch = context.json || arguments.count > 0 || ::isatty(STDOUT_FILENO) == 0;
  if (batch) return shown.batch(signals);
  Terminal terminal(signals);
  shown.on(terminal);
}

}  // namespace

void add_top(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* verb = app.add_subcommand(
      "top", "what devices, paths and exports of this host do now, the busiest first");
  verb->add_option("--interval", arguments->interval, "between two looks: 100ms to 1h")
      ->capture_default_str();
  verb->add_option("--count", arguments->count,
                   "print so many tables, an interval each, and end (default on a terminal: one "
                   "page that changes; else tables without end)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--sort", arguments->sort, "bytes, operations, latency or name")
      ->check(CLI::IsMember({"bytes", "operations", "latency", "name"}))
      ->capture_default_str();
  verb->footer(
      "Keys: q ends it, p pauses, s sorts by something else, up and down move.\n"
      "Examples:\n"
      "  braid top\n"
      "  braid top --interval 10s --count 6 >load.txt\n"
      "  braid top --json --count 1");
  verb->callback([&context, arguments] { top(context, *arguments); });
}

}  // namespace braid::cli
