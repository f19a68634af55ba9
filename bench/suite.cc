#include "bench/suite.h"

#include "bench/workload.h"

namespace braid::bench {

base::Result<std::vector<RowPlan>> suite_named(const std::string& name) {
  if (name == "block") return block_suite();
  if (name == "micro") return micro_suite();
  if (name == "gate") return gate_suite();
  return base::make_error(base::Errc::kInvalid,
                          "no suite is called \"{}\"; there are: block, micro, gate", name);
}

base::Result<SuiteResult> run_suite(const std::string& name, Bench& bench) {
  BRAID_TRY(std::vector<RowPlan> plans, suite_named(name));
  std::erase_if(plans, [&](const RowPlan& plan) {
    return plan.name.find(bench.options.filter) == std::string::npos ||
           bench.options.left_out.contains(plan.name);
  });
  if (plans.empty()) {
    return base::make_error(base::Errc::kNotFound, "no row of \"{}\" has \"{}\" in its name", name,
                            bench.options.filter);
  }
  SuiteResult result;
  nlohmann::json machine = machine_facts(bench.cpus);
  machine["load_1m_before"] = load_1m();
  auto rows = nlohmann::json::array();
  for (RowPlan& plan : plans) {
    auto row = measure(bench, plan);
    // What was measured before somebody had enough is kept.
    result.interrupted = row.code() == base::Errc::kCanceled && !result.rows.empty();
    if (result.interrupted) break;
    if (!row.ok()) return row.error();
    rows.push_back(to_json(*row));
    result.rows.push_back(std::move(*row));
    // Ends the row's servers before the next row starts its own.
    plan = RowPlan{};
  }
  machine["load_1m_after"] = load_1m();
  const BlockWorkload sizes = block_workload(bench.options);
  result.document = {{"suite", name},
                     {"brief", bench.options.brief},
                     {"run_ms", sizes.run_ms},
                     {"store_bytes", sizes.store_bytes},
                     {"cache_line_max_ns", bench.options.gate.cache_line_max_ns},
                     {"machine", machine},
                     {"rows", rows}};
  BRAID_CHECK(check_document(result.document));
  return result;
}

}  // namespace braid::bench
