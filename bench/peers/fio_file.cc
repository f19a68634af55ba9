#include "bench/peers/fio_file.h"

namespace braid::bench {
namespace {

class IoUringOnFile : public FioTarget {
 public:
  std::string name() const override { return "fio io_uring engine on the file itself, O_DIRECT"; }
  std::string threads() const override { return "fio's job, which sleeps"; }
  base::Status start(Bench& bench, uint64_t) override {
    path_ = bench.scratch.path("file.img");  // fio makes and fills it
    return base::ok_status();
  }
  std::vector<std::string> engine() const override {
    return {"--ioengine=io_uring", "--direct=1", "--filename=" + path_};
  }

 private:
  std::string path_;
};

}  // namespace

std::unique_ptr<FioTarget> io_uring_on_file() {
  return std::make_unique<IoUringOnFile>();
}

}  // namespace braid::bench
