#!/usr/bin/env python3
"""The checks find each breach they are there for, and leave good code alone."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import co_await_conditions
import co_await_temporaries
import globals as globals_check
import house_rules
import include_direction
import one_unit
import simulated


class Tree:
    """A tree of files in a temporary folder: Tree({"base/a.h": "text"})."""

    def __init__(self, content):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for name, text in content.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def __enter__(self):
        return self.root

    def __exit__(self, *_):
        self.folder.cleanup()


class IncludeDirection(unittest.TestCase):
    HEADERS = {
        "base/clock.h": "",
        "vhca/device.h": "",
        "vhca/soft/ring.h": "",
        "trs/session.h": "",
        "bnbd/block.h": "",
        "rmr/pool.h": "",
        "tests/sim/world.h": "",
    }

    def breaches(self, path, line):
        with Tree({**self.HEADERS, path: line + "\n"}) as root:
            return include_direction.problems(root)

    def test_downwards_and_within_a_layer_is_fine(self):
        for path, line in [
            ("vhca/qp.cc", '#include "base/clock.h"'),
            ("vhca/qp.cc", '#include "vhca/soft/ring.h"'),
            ("cli/braid_main.cc", '#include "bnbd/block.h"'),
            ("brmr/volume.cc", '#include "rmr/pool.h"'),
            ("tests/sim/world.cc", '#include "vhca/soft/ring.h"'),
            ("bench/block.cc", '#include "trs/session.h"'),
            ("base/host.cc", "#include <sys/mman.h>"),
            ("base/clock.cc", '// #include "trs/session.h"'),
        ]:
            self.assertEqual(self.breaches(path, line), [], (path, line))

    def test_breaches_are_found(self):
        for path, line, reason in [
            ("base/clock.cc", '#include "vhca/device.h"', "base may not use vhca"),
            ("vhca/soft/ring.cc", '#  include "trs/session.h"', "vhca may not use trs"),
            ("bnbd/block.cc", '#include "rmr/pool.h"', "bnbd may not use rmr"),
            ("rmr/pool.cc", '#include "bnbd/block.h"', "rmr may not use bnbd"),
            ("trs/session.cc", '#include "vhca/soft/ring.h"', "private to vhca"),
            ("trs/session.cc", '#include "tests/sim/world.h"', "trs may not use tests"),
            ("trs/session.cc", '#include "session.h"', "by their path from its root"),
            ("trs/session.cc", '#include "trs/../trs/session.h"', "from the root"),
            ("trs/session.cc", "#include <trs/session.h>", "in quotes"),
            ("trs/session.cc", '#include "trs/gone.h"', "no such header"),
            ("extra/session.cc", '#include "base/clock.h"', "no known layer"),
        ]:
            found = self.breaches(path, line)
            self.assertEqual(len(found), 1, (path, line, found))
            self.assertIn(reason, found[0])


class CoAwaitTemporaries(unittest.TestCase):
    def breaches(self, code):
        return co_await_temporaries.problems_in("a.cc", code)

    def test_breaches_are_found(self):
        for statement in [
            "co_await f(Options{1});",
            "co_await f({.a = 1});",
            "co_await f({});",
            "auto r = co_await f(x,\n    trs::Options{.path = p});",
            "auto r = co_await f(Pair<int, int>{1, 2});",
            "if (auto r = co_await f(Options{1}); !r) return;",
            "if ((co_await f({1})).ok()) { g(); }",
            "while (co_await f({1})) g();",
            "g(Options{1}, co_await f());",
            "co_return g(Options{1}, co_await f());",
            "Options v{co_await f()};",
            "Options v = {1, co_await f()};",
            "g(Options{co_await f()});",
            "co_await Awaiter{1};",
            "co_return co_await Awaiter{reactor};",
            "co_await f([name] { g(name); });",
            "co_await f([&, n = std::move(n)](int x) { g(x); });",
            "co_await f([=] { g(); });",
            "auto r = co_await run([a]() -> Task<Result<int>> { co_return 1; });",
            "(co_await f()).send(Message{1});",
            "for (auto x : co_await f({1})) { g(x); }",
            "co_yield Row{1};",
        ]:
            code = f"Task<Result<int>> run() {{\n  {statement}\n}}\n"
            self.assertEqual(len(self.breaches(code)), 1, statement)

    def test_good_code_is_left_alone(self):
        for statement in [
            "Options o{1}; co_await f(o);",
            "Options o = {.a = 1};\n  co_await f(std::move(o));",
            "co_await f(1);\n  g(Options{1});",
            "if (co_await f(x)) { g(Options{1}); } else { g({1}); }",
            "for (int i = 0; i < 3; ++i) { co_await f(i); }\n  Options o{1};",
            "while (true) { co_await f(); }",
            "co_await f([this, &x] { g(Options{1}); });",
            "co_await f([&](int x) -> Result<int> { return Result<int>{x}; });",
            "auto c = [o](int x) -> Task<int> { co_await f(x); };",
            "spawn([]() -> Task<int> { co_await f(); co_return 1; }, Options{1});",
            "spawn([this]() { return [this]() -> Task<Result<int>> { co_await f(); }; });",
            "switch (x) { case 1: { co_await f(); break; } default: { g({1}); } }",
            "co_await f(a[1], b[i]);",
            "} Awaiter operator co_await() && { return Awaiter{1}; } void f() {",
            'co_await f("{", \'{\');  // f({1})',
            "try { co_await f(); } catch (const E&) { g({1}); }",
            "int a[] = {1, 2}; co_await f(a);",
            "co_await f(Id{1});  // lint: allow(co_await) Id has a constructor",
        ]:
            code = f"Task<Result<int>> run() {{\n  {statement}\n}}\nstruct A {{ int b{{1}}; }};\n"
            self.assertEqual(self.breaches(code), [], statement)


class CoAwaitConditions(unittest.TestCase):
    def breaches(self, statement):
        code = f"Task<int> run() {{\n  {statement}\n}}\n"
        return co_await_conditions.problems_in("a.cc", code)

    def test_breaches_are_found(self):
        for statement in [
            "if (!co_await f()) break;",
            "if (co_await f()) { g(); } else { h(); }",
            "if (a && (co_await f()).ok()) g();",
            "if (auto r = g(); co_await f(r)) h();",
            "while (co_await f()) g();",
            "do { g(); } while (!co_await f());",
            "for (int i = 0; co_await f(i); ++i) g();",
            "for (int i = 0; i < 3; i = co_await f(i)) g();",
            "switch (co_await f()) { default: g(); }",
            "for (;;) {\n    if (!\n        co_await f()) break;\n  }",
        ]:
            self.assertEqual(len(self.breaches(statement)), 1, statement)

    def test_good_code_is_left_alone(self):
        for statement in [
            "const bool came = co_await f();\n  if (!came) break;",
            "if (x) co_await f();",
            "while (!done) { co_await f(); }",
            "if (auto r = co_await f(); !r.ok()) co_return r.error();",
            "for (auto r = co_await f(); r; --r) g();",
            "if (g([&] { return [this]() -> Task<int> { co_return co_await f(); }; })) h();",
            "if (!co_await f()) break;  // lint: allow(co_await) not in g++",
            "// if (!co_await f()) break;\n  g();",
        ]:
            self.assertEqual(self.breaches(statement), [], statement)


class Simulated(unittest.TestCase):
    BREACHES = [
        "#include <unistd.h>",
        "#include <sys/mman.h>",
        "#include <chrono>",
        "auto t = std::chrono::steady_clock::now();",
        "std::random_device device;",
        "thread_local int x;",
        "std::map<Session*, int> sessions_;",
        "std::set<const trs::Path *> paths_;",
        "std::set<std::shared_ptr<Path>> paths_;",
        "std::map<std::unique_ptr<Path>, int> paths_;",
        "std::priority_queue<Timer*> timers_;",
        "size_t h = std::hash<const Path*>()(path);",
        "int n = rand();",
        "int n = std::rand();",
        "int n = ::random();",
        "auto t = time(nullptr);",
        "auto t = ::time(&t);",
        "std::mt19937_64 engine;",
        "std::uniform_int_distribution<int> dice(1, 6);",
        "std::thread helper(run);",
        "std::unordered_map<int, int> m;\nvoid f() { for (auto& [k, v] : m) g(k); }",
        "std::unordered_set<int> s{};\nauto i = s.begin();",
    ]

    def test_breaches_are_found(self):
        for line in self.BREACHES:
            with Tree({"trs/a.cc": line + "\n"}) as root:
                self.assertEqual(len(simulated.problems(root)), 1, line)
        header = "#pragma once\nstruct A { std::unordered_map<int, int> m_; void f(); };\n"
        user = '#include "trs/a.h"\nvoid A::f() { for (auto& e : m_) g(e); }\n'
        with Tree({"trs/a.h": header, "trs/a.cc": user}) as root:
            self.assertEqual(len(simulated.problems(root)), 1)

    def test_tests_and_wrappers_of_the_system_may(self):
        for line in self.BREACHES:
            for path in ["base/linux/a.cc", "trs/a_test.cc", "cli/a.cc", "tests/sim/a.cc"]:
                with Tree({path: line + "\n"}) as root:
                    self.assertEqual(simulated.problems(root), [], (path, line))

    def test_good_code_is_left_alone(self):
        for line in [
            "#include <sys/uio.h>",
            "#include <infiniband/verbs.h>",
            "std::map<int, Session*> sessions_;",
            "std::map<std::string, std::unique_ptr<Path>> paths_;",
            "std::set<std::pair<int, int>> pairs_;",
            "host_.random(bytes);",
            "SimRandom& random() { return random_; }",
            "SimRandom& random();",
            "host->random(bytes);",
            "world.random().below(2);",
            "uint64_t time() const;",
            "connect_time(0);",
            "std::hash<std::string> h;",
            "std::unordered_map<int, int> m;\nauto i = m.find(1);",
            "for (auto& e : sessions_) g(e);",
            "#include <chrono>  // lint: allow(os) the reason",
        ]:
            with Tree({"trs/a.cc": line + "\n"}) as root:
                self.assertEqual(simulated.problems(root), [], line)


class Globals(unittest.TestCase):
    def variables(self, code, path="trs/a.cc"):
        with Tree({path: code}) as root:
            built = root / "a.o"
            subprocess.run(["c++", "-std=c++20", "-c", root / path, "-o", built], check=True)
            entry = {"directory": str(root), "file": path, "command": "c++ -o a.o -c"}
            commands = root / "commands.json"
            commands.write_text(json.dumps([entry]))
            return globals_check.problems(root.resolve(), commands)

    def test_each_kind_is_found(self):
        code = """
            #include <string>
            int counter;
            int start = 7;
            static int hidden;
            static thread_local int mine = 1;
            struct A { static inline int of_class = 0; };
            int* f() { static std::string name("x"); return &A::of_class + name.size(); }
            int g() { return ++hidden + ++mine; }
        """
        found = "\n".join(self.variables(code))
        for name in ["counter", "start", "hidden", "mine", "A::of_class", "f[abi:cxx11]()::name"]:
            self.assertIn(f"trs/a.cc: {name.replace('[abi:cxx11]', '')} is a global", found)

    def test_constants_tables_and_code_are_left_alone(self):
        code = """
            #include <string_view>
            constexpr int kSize = 4;
            const char* const kNames[] = {"a", "b"};
            struct B { virtual ~B() {} virtual int f(); };
            int B::f() { return kSize; }
            const char* name(int i) {
              static const std::string_view s = "x";
              return i ? kNames[i] : s.data();
            }
        """
        self.assertEqual(self.variables(code), [])

    def test_other_code_may(self):
        for path in ["base/linux/a.cc", "cli/a.cc", "trs/a_test.cc"]:
            self.assertEqual(self.variables("int counter;\n", path), [])

    def test_what_was_not_built_is_said(self):
        with Tree({"trs/a.cc": ""}) as root:
            entry = {"directory": str(root), "file": "trs/a.cc", "command": "c++ -o a.o -c"}
            commands = root / "commands.json"
            commands.write_text(json.dumps([entry]))
            found = globals_check.problems(root.resolve(), commands)
        self.assertEqual(len(found), 1)
        self.assertIn("not built", found[0])


    def test_sources_that_are_compiled_together(self):
        both = '#include "{0}/trs/a.cc"\n#include "{0}/{1}/b.cc"\n'
        together = "trs/a.cc, trs/b.cc: counter is a global"
        for folder, said in [("trs", together), ("cli", "only some")]:
            with Tree({"trs/a.cc": "int counter;\n", f"{folder}/b.cc": ""}) as root:
                (root / "Unity").mkdir()
                (root / "Unity/unity_0.cxx").write_text(both.format(root.resolve(), folder))
                built = ["c++", "-c", root / "Unity/unity_0.cxx", "-o", root / "a.o"]
                subprocess.run(built, check=True)
                entry = {
                    "directory": str(root),
                    "file": "Unity/unity_0.cxx",
                    "command": "c++ -o a.o -c",
                }
                commands = root / "commands.json"
                commands.write_text(json.dumps([entry]))
                found = globals_check.problems(root.resolve(), commands)
            self.assertEqual(len(found), 1)
            self.assertIn(said, found[0])


class OneUnit(unittest.TestCase):
    def errors(self, first, second):
        with Tree({"trs/a.cc": first, "trs/b.cc": second}) as root:
            made = "clang++ -std=c++20 -o CMakeFiles/braid_trs.dir/x.o -c x.cc"
            return list(
                one_unit.problems(
                    {"directory": str(root), "file": str(root / name), "command": made}
                    for name in ["trs/a.cc", "trs/b.cc"]
                )
            )

    def test_a_name_of_two_files_is_found(self):
        found = self.errors("namespace { int a(); }\n", "namespace { long a(); }\n")
        self.assertEqual(len(found), 1)
        self.assertIn("b.cc:1", found[0])
        self.assertIn("all of braid_trs", found[0])

    def test_names_that_differ_are_not(self):
        self.assertEqual(self.errors("namespace { int a; }\n", "namespace { int b; }\n"), [])


class HouseRules(unittest.TestCase):
    def breaches(self, content, compiled=None):
        with Tree(content) as root:
            names = compiled if compiled is not None else [n for n in content if n.endswith(".cc")]
            return house_rules.problems(root, {root / name for name in names})

    def test_breaches_are_found(self):
        for path, text, reason in [
            ("base/a.cc", "int x;\n" * 601, "601 lines"),
            ("base/a.cc", "//" + "x" * 99 + "\n", "101 columns"),
            ("base/a_test.cc", "void f() { std::this_thread::sleep_for(t); }\n", "sleeps"),
            ("tests/system/a.cc", "void f() { usleep(1); }\n", "sleeps"),
            ("tests/system/a.py", "time.sleep(1)\n", "sleeps"),
            ("tests/system/a.sh", "  sleep 1\n", "sleeps"),
            ("tests/system/lib.sh", "  read -rt 0.05 <> <(:) || true\n", "sleeps"),
            ("tests/system/lib.sh", "while x; do read -t 1 line; done\n", "sleeps"),
            ("tests/system/lib.sh", "if x; then usleep 5; fi\n", "sleeps"),
            ("tests/sim/a.cc", "void f() { ::poll(nullptr, 0, 50); }\n", "sleeps"),
            ("tests/system/script", "#!/usr/bin/env bash\nsleep 1\n", "sleeps"),
            ("tests/system/a.sh", "ctl list | grep -qF x\n", "ends early"),
            ("CMakeLists.txt", "#" * 101 + "\n", "101 columns"),
            ("base/a.cc", "// TODO: later\n", "kind"),
            ("base/a.cc", "// TODO(me): later\n", "kind"),
            ("base/a.cc", "// FIXME\n", "leftover"),
            ("base/a.cc", "int a; // XXX why\n", "leftover"),
            ("base/a.cc", "int x;  \n", "space at the end"),
            ("base/a.cc", "\tint x;\n", "tab"),
            ("base/a.cc", "void f() { if (a) EXPECT_EQ(b, c); }\n", "wants braces"),
            ("base/a.cc", "int x;", "end of line"),
        ]:
            found = self.breaches({path: text})
            self.assertEqual(len(found), 1, (path, text[:40], found))
            self.assertIn(reason, found[0])

    def test_headers(self):
        user = {"base/b.cc": '#include "base/a.h"\n'}
        self.assertEqual(self.breaches({"base/a.h": "#pragma once\n", **user}), [])
        for text in ["int x;\n", "#pragma once\nusing namespace std;\n"]:
            self.assertEqual(len(self.breaches({"base/a.h": text, **user})), 1, text)
        helper = {"base/test_a.h": "#pragma once\ninline void f() { usleep(1); }\n"}
        user = {"base/b_test.cc": '#include "base/test_a.h"\n'}
        self.assertIn("sleeps", self.breaches({**helper, **user})[0])

    def test_orphans_are_found(self):
        self.assertIn("not compiled", self.breaches({"base/a.cc": "int x;\n"}, compiled=[])[0])
        self.assertIn("not included", self.breaches({"base/a.h": "#pragma once\n"})[0])

    def test_binaries_are_found(self):
        self.assertIn("not text", self.breaches({"braid-15-a_test/disk.img": "\0" * 512})[0])
        self.assertEqual(self.breaches({"tests/fuzz/corpus/wire/1": "\0" * 512}), [])

    def test_good_code_is_left_alone(self):
        for path, text in [
            ("base/a.cc", "int x;\n" * 600),
            ("base/a.cc", "// TODO(perf): batch these.\n"),
            ("base/a.cc", 'const char* kName = "/tmp/braid-XXXXXX";\n'),
            ("base/a.cc", "void f() { usleep(1); }\n"),
            ("base/a_test.cc", "// A test must not call sleep().\nint asleep(int);\n"),
            ("base/a.cc", "// TO" + "DO later  // lint: allow(todo) the reason\n"),
            ("tests/system/a.sh", "setsid sleepy\n"),
            ("tests/system/a.sh", "read -r line <fifo; thread -t 1\n"),
            ("tests/system/a.sh", "read -t 1 x  # lint: allow(sleep) between two looks\n"),
        ]:
            self.assertEqual(self.breaches({path: text}), [], (path, text[:40]))


if __name__ == "__main__":
    unittest.main()
