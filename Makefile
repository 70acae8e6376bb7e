# Sources are found by wildcard: put a file where it belongs and it is built. `make help` lists the targets.
# Variables: BUILD, CC, CFLAGS, LDFLAGS, PREFIX, SYSCONFDIR, DESTDIR, PYTHON, SANITIZE=address,undefined, WERROR=1, V=1
VERSION := 0.1.0
BUILD ?= build
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
CFLAGS ?= -O2 -g -fstack-protector-strong
comma := ,

# Sanitized objects and programs have a tree of their own, so that both kinds live side by side.
out := $(BUILD)/$(if $(SANITIZE),$(subst $(comma),-,$(SANITIZE)),plain)
dest := $(if $(SANITIZE),$(out),$(BUILD))
bin := $(dest)/bin
harness_dir := $(dest)/lib/verifierd
py = $(or $(PYTHON),$(realpath $(BUILD)/venv)/bin/python3)
Q := $(if $(V),,@)

pkg = $(shell pkg-config $(1) $(2) 2>/dev/null)
common_pkgs := jansson libsodium
server_pkgs := libmicrohttpd sqlite3 libpq libuv libzstd
cli_pkgs := libcurl smartcols libconfuse
pkgs := $(common_pkgs) $(server_pkgs) $(cli_pkgs)
test_pkgs := cmocka

own_cflags := -std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
	$(if $(WERROR),-Werror) -D_GNU_SOURCE= -DVERIFIERD_VERSION='"$(VERSION)"' -I. -pthread \
	$(call pkg,--cflags,$(pkgs)) $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer)
own_ldflags := -pthread -Wl,--as-needed $(if $(SANITIZE),-fsanitize=$(SANITIZE))
common_libs := $(call pkg,--libs,$(common_pkgs) libcurl libzstd) -lm
server_libs := $(call pkg,--libs,$(server_pkgs)) $(common_libs)
cli_libs := $(call pkg,--libs,$(cli_pkgs)) $(common_libs)
native_libs := -lm -ldl

objects = $(patsubst %.c,$(out)/%.o,$(1))
common_src := $(wildcard common/*.c)
server_src := $(wildcard server/*.c server/http/*.c server/queue/*.c server/submission/*.c server/verdict/*.c server/task/*.c server/store/*.c server/store/*/*.c server/workers/*.c)
cli_src := $(wildcard client/cli/*.c)
trainer_src := $(wildcard client/trainer/*.c)
native_src := $(wildcard server/harness/native/*.c)
harness_py := $(wildcard server/harness/*.py server/harness/*/*.py)
finetune_files := $(wildcard client/python/finetune/*.py client/python/finetune/*.json client/python/prepare/*.py \
	client/python/pipeline/*.py client/python/selftest/*.py client/python/verifierd_client/*.py)
prompt_files := $(wildcard client/prompt/*.txt)
assets := $(wildcard server/dashboard/*) $(wildcard proto/openapi.yaml proto/openapi.json)
unit_src := $(wildcard tests/unit/test_*.c)
unit_aids := $(filter-out $(unit_src),$(wildcard tests/unit/*.c))
fuzz_src := $(wildcard tests/fuzz/fuzz_*.c)
unit_py := $(wildcard tests/unit/test_*.py)
c_files := $(wildcard common/*.[ch] proto/*.h server/*.[ch] server/*/*.[ch] server/*/*/*.[ch] \
	client/*/*.[ch] tests/unit/*.[ch] tests/fuzz/*.[ch] tests/bench/*.[ch])
py_files = $(shell git ls-files '*.py' ':!tests/candidates' ':!tests/tasks')

programs := $(if $(wildcard server/main.c),$(bin)/verifierd) $(if $(wildcard client/cli/main.c),$(bin)/verifier) \
	$(if $(wildcard client/trainer/main.c),$(bin)/trainer)
units := $(patsubst tests/unit/%.c,$(out)/unit/%,$(unit_src))
fuzzers := $(patsubst tests/fuzz/fuzz_%.c,$(out)/fuzz/%,$(fuzz_src))

.DELETE_ON_ERROR:
.SECONDARY:
.SECONDEXPANSION:
.PHONY: help all contract harness finetune corpus tests setup setup-test setup-train trainers demo demo-cluster demo-train demo-run test test-fast test-unit test-unit-c test-unit-judging test-unit-rest test-e2e test-fault test-stop check lint lint-c lint-cycles format tidy lint-python \
	requirements sanitize clang slow slow-e2e slow-fault slow-training fuzz fuzz-replay install uninstall installcheck bundle gpu-check kernelbench selftest-compare bench timing-report screenshots \
	clean distclean deb deb-check image dist libraries FORCE

all: libraries $(programs) harness finetune corpus ## programs, harness and corpus, into $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z][a-z0-9-]*\):[^=#]*## \(.*\)/\1\t\2/p' Makefile | expand -t 16
	@printf '%s\n' '' 'bench-NAME      one bench: tests/bench/NAME.py' \
		'Variables: BUILD CC CFLAGS LDFLAGS PREFIX SYSCONFDIR DESTDIR PYTHON SANITIZE=address,undefined WERROR=1 V=1'

libraries:
	@pkg-config --print-errors --exists $(pkgs) || \
		{ echo 'Libraries are missing: "make setup" installs them.' >&2; exit 1; }

contract: ## proto/openapi.json from openapi.yaml: after each change of it
	$(py) server/deploy/contract proto/openapi.yaml >proto/openapi.json.new
	mv proto/openapi.json.new proto/openapi.json

# --- compiling -----------------------------------------------------------------------------------------

# Changes whenever the compiler or a flag does, and everything is compiled again.
$(out)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(CC) $(own_cflags) $(CPPFLAGS) $(CFLAGS) $(own_ldflags) $(LDFLAGS))' >$@.$$PPID
	@cmp -s $@.$$PPID $@ && rm $@.$$PPID || mv $@.$$PPID $@

say = @printf '  %-5s %s\n' $(1) $(2)
compile = $(CC) $(own_cflags) -MMD -MP $(CPPFLAGS) $(CFLAGS)

$(out)/%.o: %.c $(out)/flags | libraries
	$(if $(V),,$(call say,CC,$<))
	@mkdir -p $(@D)
	$(Q)$(compile) -c -o $@ $<

# What libharness.so shares with the daemon.
native_common := $(call objects,common/statistics.c)
$(out)/server/harness/native/%.o $(native_common): private own_cflags += -fPIC

$(out)/gen/assets.c: server/deploy/embed $(assets)
	@mkdir -p $(@D)
	$(Q)server/deploy/embed $(assets) >$@

$(out)/gen/assets.o: $(out)/gen/assets.c $(out)/flags
	$(Q)$(compile) -c -o $@ $<

archive = $(if $(V),,$(call say,AR,$@))
$(out)/libcommon.a: $(call objects,$(common_src))
$(out)/libserver.a: $(call objects,$(filter-out server/main.c,$(server_src))) $(if $(assets),$(out)/gen/assets.o)
$(out)/libcli.a: $(call objects,$(filter-out client/cli/main.c,$(cli_src)))
$(out)/libtrainer.a: $(call objects,$(filter-out client/trainer/main.c,$(trainer_src)))
$(out)/libnative.a: $(call objects,$(native_src))
$(out)/lib%.a:
	$(archive)
	$(Q)$(AR) rcs $@.$$$$ $^ && mv $@.$$$$ $@

link = $(CC) $(CFLAGS) $(own_ldflags) $(LDFLAGS) -o $@ $(filter %.o %.a,$^)
$(bin)/verifierd: $(out)/server/main.o $(out)/libserver.a $(out)/libcommon.a
	$(if $(V),,$(call say,LD,$@))
	@mkdir -p $(@D)
	$(Q)$(link) $(server_libs)

$(bin)/verifier: $(out)/client/cli/main.o $(out)/libcli.a $(out)/libcommon.a
	$(if $(V),,$(call say,LD,$@))
	@mkdir -p $(@D)
	$(Q)$(link) $(cli_libs)

# What common/embed.h puts into a program.
$(out)/server/store/sqlite/schema.o: $(wildcard server/store/sqlite/schema/*)
$(out)/server/store/pgsql/schema.o: $(wildcard server/store/pgsql/schema/*)
$(out)/client/trainer/prompt.o: $(wildcard client/prompt/*.txt)
$(out)/client/trainer/settings.o: $(wildcard client/python/finetune/*.json)

$(bin)/trainer: $(out)/client/trainer/main.o $(out)/libtrainer.a $(out)/libcommon.a
	$(if $(V),,$(call say,LD,$@))
	@mkdir -p $(@D)
	$(Q)$(link) $(cli_libs)

# --- the harness: Python files beside the binary, and their small C library ------------------------------

harness: $(if $(native_src),$(harness_dir)/libharness.so) $(patsubst server/harness/%,$(harness_dir)/harness/%,$(harness_py))

$(harness_dir)/libharness.so: $(call objects,$(native_src)) $(native_common)
	$(if $(V),,$(call say,LD,$@))
	@mkdir -p $(@D)
	$(Q)$(link) -shared -Wl,-soname,libharness.so $(native_libs)

$(harness_dir)/harness/%.py: server/harness/%.py
	@mkdir -p $(@D)
	@install -m 644 $< $@

# --- the packages that prepare data and take gradient steps, where the trainer looks for them ---------------

finetune: $(patsubst client/python/%,$(harness_dir)/%,$(finetune_files)) \
	$(patsubst client/prompt/%,$(harness_dir)/prepare/prompt/%,$(prompt_files))

put_file = @mkdir -p $(@D) && install -m 644 $< $@

$(harness_dir)/finetune/%: client/python/finetune/%
	$(put_file)

$(harness_dir)/prepare/%: client/python/prepare/%
	$(put_file)

$(harness_dir)/pipeline/%: client/python/pipeline/%
	$(put_file)

$(harness_dir)/selftest/%: client/python/selftest/%
	$(put_file)

$(harness_dir)/verifierd_client/%: client/python/verifierd_client/%
	$(put_file)

$(harness_dir)/prepare/prompt/%: client/prompt/%
	$(put_file)

# --- the corpus of `verifier selftest`, where the program looks for it ------------------------------------

corpus_dir := $(dest)/share/verifierd/corpus
corpus_parts := tests/tasks tests/candidates tests/quick
corpus_files := $(shell find $(corpus_parts) -name __pycache__ -prune -o -type f -print)
copy_corpus = rm -rf '$(1)' && mkdir -p '$(1)' && tar -cf - --exclude=__pycache__ --mode=u+rwX,go=rX -C tests \
	$(notdir $(corpus_parts)) | tar -xf - --no-same-owner -C '$(1)'

corpus: $(corpus_dir)/.made

# The directories count too: a file that is gone changes them.
$(corpus_dir)/.made: $(corpus_files) $(sort $(dir $(corpus_files)))
	$(Q)$(call copy_corpus,$(corpus_dir))
	$(Q)touch $@

# --- tests -----------------------------------------------------------------------------------------------

# A test gets the objects it names: tests/unit/X.c is linked when the test includes "tests/unit/X.h".
# So does what that includes.
included = $(filter $(unit_aids),$(shell sed -n 's,^\#include "\(tests/unit/[a-z0-9_]*\)\.h".*,\1.c,p' $(1)))
aids_of = $(call objects,$(sort $(call included,$(1)) $(foreach aid,$(call included,$(1)),$(call included,$(aid)))))

$(out)/unit/%: $(out)/tests/unit/%.o $$(call aids_of,tests/unit/%.c) \
		$(out)/libserver.a $(out)/libcli.a $(out)/libtrainer.a $(out)/libnative.a $(out)/libcommon.a
	$(if $(V),,$(call say,LD,$@))
	@mkdir -p $(@D)
	$(Q)$(link) $(server_libs) $(cli_libs) $(native_libs) $(call pkg,--libs,$(test_pkgs))

tests: $(units) $(fuzzers) ## the programs of the C units and fuzz targets

# How the tests and benches find the programs and an interpreter with torch.
with_env = PYTHON='$(py)' VERIFIERD_BUILD='$(realpath $(BUILD))' \
	VERIFIERD_LIBHARNESS='$(realpath $(BUILD))/lib/verifierd/libharness.so'

setup: ## system packages, torch and triton in $(BUILD)/venv
	PYTHON='$(PYTHON)' BUILD='$(BUILD)' server/deploy/setup run

trainers:
	PYTHON='$(PYTHON)' BUILD='$(BUILD)' server/deploy/setup trainers

setup-test: ## the same, with what the tests need
	PYTHON='$(PYTHON)' BUILD='$(BUILD)' server/deploy/setup run test

# What the gradient step stands on: transformers, peft, accelerate, TRL.
setup-train: ## the same, with what the gradient step needs
	PYTHON='$(PYTHON)' BUILD='$(BUILD)' server/deploy/setup run train

# Compiling uses all cores; what is run afterwards runs alone.
parallel = $(MAKE) $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

demo: setup ## start a daemon, judge real kernels, leave the dashboard running
	+$(parallel) all
	'$(py)' server/deploy/demo.py --programs '$(realpath $(BUILD))/bin' --python '$(py)'

demo-cluster: setup-test ## three daemons on a PostgreSQL of their own: one is killed, nothing is lost
	+$(parallel) all
	VERIFIERD_BUILD='$(realpath $(BUILD))' '$(py)' server/deploy/demo_cluster.py

demo-train: setup ## a small Best-of-N round and two evaluations with a scripted model
	+$(parallel) all
	'$(py)' client/deploy/demo_train.py --programs '$(realpath $(BUILD))/bin' --python '$(py)'

demo-run: setup-train ## trainer run from rows to a report, with a tiny model: minutes
	+$(parallel) all
	'$(py)' client/deploy/demo_run.py --programs '$(realpath $(BUILD))/bin' --python '$(py)' $(ARGS)

# The pictures of docs/screenshots, of what this machine judges meanwhile.
screenshots: setup-test ## the pictures of docs/screenshots anew
	+$(parallel) all
	'$(py)' server/deploy/screenshots.py --programs '$(realpath $(BUILD))/bin' --python '$(py)'

pytest = $(with_env) '$(py)' -m pytest -q -rs -p no:cacheprovider --junitxml='$(BUILD)/results/$(1).xml'

# Two suites at a time: one computes where the other waits. Each process computes with one thread. The one that waits
# most is named first.
two_at_a_time = OMP_NUM_THREADS=1 $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j2) --output-sync=line

test: setup-test ## all tests but the slow ones
	+$(parallel) all tests
	+$(two_at_a_time) test-fault test-e2e test-unit-judging test-unit-c test-unit-rest

# Every C unit, the Python units that need neither a child nor a GPU, and a daemon with scripted workers: under two minutes.
fast_py := $(patsubst %,tests/unit/test_%.py,documents ast_stage plan stopping wire) \
	$(patsubst %,tests/fault/test_%.py,group idempotency)
test-fast: all tests ## every C unit and a choice of the rest, in under two minutes
	server/deploy/run-tests $(units)
	$(call pytest,fast) -m 'not slow' $(fast_py)

test-unit: test-unit-c test-unit-judging test-unit-rest ## C and Python units

test-unit-c: tests harness
	server/deploy/run-tests $(units)

# More than half of the time of all Python units.
judging_py := $(patsubst %,tests/unit/test_%.py,referee clock_protocol compiled cases in_process)
test-unit-judging: harness
	$(call pytest,unit-judging) $(judging_py)

test-unit-rest: harness
	$(call pytest,unit) $(filter-out $(judging_py),$(unit_py))

test-e2e: all ## the built daemon with the real harness
	$(call pytest,e2e) -m 'not slow' tests/e2e

test-fault: all ## the built daemon with scripted workers, killed and starved
	$(call pytest,fault) -m 'not slow' tests/fault
	KILL_HARNESS=real $(call pytest,kill-real) tests/fault/test_kill.py -k killed

# The daemon of this build, sanitized or not: what it frees when it stops.
test-stop: $(bin)/verifierd
	$(with_env) VERIFIERD_BUILD='$(realpath $(dest))' '$(py)' -m pytest -q -rs -p no:cacheprovider tests/fault/test_stop_with_writes.py

check: setup-test ## lint, types, sanitizers, fuzz replay, slow tests, requirements
	+$(parallel) trainers clang tidy
	+$(two_at_a_time) slow-e2e slow-fault slow-training sanitize lint
	+$(MAKE) requirements ARGS='--results $(BUILD)/results'

lint: lint-c lint-python lint-cycles ## clang and clang-tidy, clang-format, ruff, mypy, rings of files

lint-c: clang tidy
	clang-format-14 --dry-run --Werror $(c_files)

format: ## format C and Python
	clang-format-14 -i $(c_files)
	'$(py)' -m ruff format $(py_files)

clang:
	+$(MAKE) BUILD='$(BUILD)/clang' CC=clang-14 WERROR=1 all tests

# One file for each run: clang-tidy 14 takes va_start for missing in the second and later files of one run. Nearly all of
# its time is the analyzer's; by default that follows three times as many paths of a function.
tidied := $(patsubst %.c,$(BUILD)/tidy/%.ok,$(common_src) $(server_src) $(cli_src) $(trainer_src) $(native_src))

tidy: $(tidied)

$(BUILD)/tidy/%.ok: %.c .clang-tidy $(wildcard */*.h */*/*.h */*/*/*.h)
	$(call say,TIDY,$<)
	@mkdir -p $(@D)
	$(Q)clang-tidy-14 --quiet --warnings-as-errors='*' $< -- $(own_cflags) \
		-Xclang -analyzer-config -Xclang max-nodes=75000 2>$@.log || { cat $@.log; exit 1; }
	@touch $@

lint-cycles:
	'$(py)' tests/cycles.py

lint-python:
	'$(py)' -m ruff check $(py_files)
	'$(py)' -m ruff format --check $(py_files)
	MYPYPATH=client/python:server/deploy:tests:tests/unit:tests/bench:tests/e2e '$(py)' -m mypy $(filter-out tests/e2e/% tests/fault/%,$(py_files))
	MYPYPATH=client/python:tests:tests/unit:tests/e2e:tests/bench '$(py)' -m mypy $(filter tests/e2e/%,$(py_files))
	MYPYPATH=tests:tests/e2e:tests/fault:server/deploy '$(py)' -m mypy $(wildcard tests/fault/*.py)
	MYPYPATH=tests/fault/harness '$(py)' -m mypy $(wildcard tests/fault/harness/*.py)

# The tests of what runs in two threads.
threaded := $(filter test_store%,$(notdir $(units)))

sanitize: ## units under address, undefined and thread sanitizers
	+$(parallel) SANITIZE=address,undefined WERROR=1 tests harness
	+$(MAKE) SANITIZE=address,undefined WERROR=1 test-unit-c
	+$(MAKE) SANITIZE=address,undefined WERROR=1 fuzz-replay
	+$(MAKE) SANITIZE=address,undefined WERROR=1 test-stop
	+$(parallel) SANITIZE=thread WERROR=1 $(threaded:%=$(BUILD)/thread/unit/%)
	server/deploy/run-tests $(threaded:%=$(BUILD)/thread/unit/%)

slow: ## the tests marked slow
	+$(two_at_a_time) slow-e2e slow-fault slow-training

# What takes gradient steps: a third of the time of all slow tests with the real harness.
training_e2e := $(patsubst %,tests/e2e/test_%.py,bench_training evaluate_checkpoint finetune run run_along)

slow-e2e: all trainers
	$(call pytest,slow-e2e) -m slow $(filter-out $(training_e2e),$(wildcard tests/e2e/test_*.py))

slow-training: all trainers
	$(call pytest,slow-training) -m slow $(training_e2e)

slow-fault: all trainers
	$(call pytest,slow-fault) -m slow tests/fault
	KILL_ROUNDS=200 $(call pytest,kill) tests/fault/test_kill.py
	'$(py)' tests/protocol_mutants.py

# Of `make check`: what the test runs before it showed, with the same sources, is not run again.
requirements: all tests ## what docs/requirements.md says shows each requirement; ARGS='39 41': these
	$(with_env) '$(py)' tests/requirements.py $(ARGS)

# Committed inputs through every parser of outside bytes; `make fuzz TARGET=extract SECONDS=60` looks for new ones.
$(out)/fuzz/%: $(out)/tests/fuzz/fuzz_%.o $(out)/tests/fuzz/replay.o $(out)/libserver.a $(out)/libcommon.a
	@mkdir -p $(@D)
	$(Q)$(link) $(server_libs)

fuzz-replay: $(fuzzers) ## the committed corpus through every parser of outside bytes
	$(foreach f,$(fuzzers),$(f) tests/fuzz/corpus/$(notdir $(f))/* &&) echo 'fuzz corpus: replayed $(words $(fuzzers)) targets'

fuzz: $(out)/gen/assets.c ## look for new inputs: TARGET=extract SECONDS=60
	@test -n '$(TARGET)' || { echo 'usage: make fuzz TARGET=extract [SECONDS=60]' >&2; exit 2; }
	@mkdir -p $(BUILD)/fuzz/found-$(TARGET)
	clang-14 $(own_cflags) -O1 -g -fsanitize=fuzzer,address,undefined -o $(BUILD)/fuzz/$(TARGET) \
		tests/fuzz/fuzz_$(TARGET).c $(filter-out server/main.c,$(server_src)) $(common_src) $< $(server_libs)
	$(BUILD)/fuzz/$(TARGET) -max_total_time=$(or $(SECONDS),60) $(BUILD)/fuzz/found-$(TARGET) tests/fuzz/corpus/$(TARGET)

# --- measuring, and the GPU machine -----------------------------------------------------------------------

# Ends with a line for each target of docs/performance.md; its status says whether all were met.
bench: bench-durable bench-sandbox ## the targets of docs/performance.md
	gpu=0; $(with_env) '$(py)' tests/bench/speed.py || gpu=$$?; \
	$(with_env) '$(py)' tests/bench/capacity.py $(ARGS) && { test $$gpu -eq 0 || test $$gpu -eq 77; }

bench_programs := $(patsubst tests/bench/%.c,$(out)/bench/%,$(wildcard tests/bench/*.c))

$(out)/bench/%: $(out)/tests/bench/%.o $(out)/libserver.a $(out)/libcommon.a
	$(if $(V),,$(call say,LD,$@))
	@mkdir -p $(@D)
	$(Q)$(link) $(server_libs)

bench-%: all $(bench_programs)
	$(with_env) '$(py)' tests/bench/$*.py $(ARGS)

# The figures of docs/measurements/timing.md, from the raw data; ARGS=--write puts them into the page.
timing-report: harness
	$(with_env) '$(py)' tests/bench/timing_report.py $(ARGS)

kernelbench: all ## judge KernelBench's references: DIR=checkout
	@test -n '$(DIR)' || { echo 'usage: make kernelbench DIR=checkout-of-KernelBench' >&2; exit 2; }
	$(with_env) '$(py)' tests/bench/kernelbench.py '$(DIR)' $(ARGS)

selftest-compare: all
	$(with_env) '$(py)' tests/bench/selftest_compare.py $(ARGS)

bundle: all ## a directory that runs where nothing can be built
	server/deploy/bundle '$(BUILD)' '$(BUILD)/bundle'

# Runs where nothing can be built: only the bundle and the tests are used.
BUNDLE ?= $(BUILD)/bundle
gpu-check: ## what can be tested on a GPU only, with a bundle
	'$(or $(PYTHON),python3)' tests/gpu_check.py --bundle '$(BUNDLE)' $(ARGS)

# --- installing ---------------------------------------------------------------------------------------------

root = $(DESTDIR)$(PREFIX)
man_pages := $(wildcard docs/*.[158])
place = sed 's,@PREFIX@,$(PREFIX),g; s,@SYSCONFDIR@,$(SYSCONFDIR),g'
conf = $(DESTDIR)$(SYSCONFDIR)/verifierd.conf
# Where each shell looks; Debian keeps zsh's site-functions for what is no package.
completions := bash:bash-completion/completions/verifier fish:fish/vendor_completions.d/verifier.fish \
	zsh:zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)/_verifier

install: all ## into PREFIX below DESTDIR
	install -d '$(root)/bin' '$(root)/lib/verifierd/harness' '$(root)/lib/systemd/system'
	install -m 755 $(programs) '$(root)/bin'
	install -m 755 $(harness_dir)/libharness.so '$(root)/lib/verifierd'
	$(foreach f,$(harness_py),install -D -m 644 $(f) '$(root)/lib/verifierd/$(f:server/%=%)' &&) true
	for file in $(finetune_files); do \
		install -D -m 644 $$file '$(root)/lib/verifierd'/$${file#client/python/} || exit; done
	install -d '$(root)/lib/verifierd/prepare/prompt'
	install -m 644 $(prompt_files) '$(root)/lib/verifierd/prepare/prompt'
	$(call copy_corpus,$(root)/share/verifierd/corpus)
	$(place) server/deploy/verifierd.service >'$(root)/lib/systemd/system/verifierd.service'
	install -d '$(root)/share/verifierd' '$(dir $(conf))'
	$(place) server/deploy/verifierd.apparmor >'$(root)/share/verifierd/apparmor'
	$(place) server/deploy/verifierd.conf >'$(root)/share/verifierd/verifierd.conf'
	test -e '$(conf)' || install -m 644 '$(root)/share/verifierd/verifierd.conf' '$(conf)'
	install -m 755 server/deploy/setup '$(root)/share/verifierd'
	install -m 644 server/deploy/alerts.yml server/deploy/grafana.json server/deploy/nginx.conf '$(root)/share/verifierd'
	install -d '$(root)/share/verifierd/cluster'
	install -m 644 server/deploy/cluster/* '$(root)/share/verifierd/cluster'
	$(foreach m,$(man_pages),install -D -m 644 $(m) '$(root)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m))';)
	for pair in $(completions); do file='$(root)/share'/$${pair#*:}; install -d "$${file%/*}" && \
		$(bin)/verifier completion $${pair%%:*} >"$$file" && chmod 644 "$$file" || exit; done

# A configuration that was changed stays.
uninstall: ## what install put there
	if cmp -s '$(root)/share/verifierd/verifierd.conf' '$(conf)'; then rm '$(conf)'; fi
	rm -f '$(root)/bin/verifierd' '$(root)/bin/verifier' '$(root)/bin/trainer' '$(root)/lib/systemd/system/verifierd.service'
	rm -rf '$(root)/lib/verifierd' '$(root)/share/verifierd'
	rm -f $(foreach m,$(man_pages),'$(root)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m))')
	for pair in $(completions); do rm -f '$(root)/share'/$${pair#*:} || exit; done

# Judges one kernel by what is installed; PYTHON has torch and triton, else the setting `python` of the installed file.
installcheck: ## what is installed judges one kernel
	'$(root)/bin/verifierd' --version
	'$(root)/bin/trainer' --version
	'$(root)/bin/verifier' judge $(if $(PYTHON),--python '$(PYTHON)',--config '$(conf)') --until full \
		--task '$(root)/share/verifierd/corpus/tasks/relu.py' '$(root)/share/verifierd/corpus/candidates/relu/honest.py'

# What setup made (the virtual environment) stays; distclean takes that too.
clean: ## $(BUILD) but the virtual environment
	rm -rf $(BUILD)/plain $(BUILD)/bin $(BUILD)/lib $(BUILD)/share $(BUILD)/bundle $(BUILD)/clang $(BUILD)/fuzz \
		$(BUILD)/address-undefined $(BUILD)/thread $(BUILD)/gpu-check

distclean:
	BUILD='$(BUILD)' server/deploy/setup undo

# A Debian package of the last commit, in build/deb; built on the system that it is for.
deb: ## a Debian package, in build/deb
	server/deploy/deb '$(BUILD)/deb' '$(VERSION)'

# Installs it into a clean Debian root, verifies kernels there, removes it. As root.
deb-check: deb ## it installed, verifying and removed in a clean Debian root
	tests/clean_root.sh $(BUILD)/deb/verifierd_$(VERSION)_*.deb $(BUILD)/venv

# BUILDER: docker, podman or buildah; IMAGE_ARGS: more for it, as --build-arg BASE=….
BUILDER ?= docker
image: deb ## a container image, by BUILDER=docker
	$(BUILDER) build $(IMAGE_ARGS) -f server/deploy/Containerfile -t verifierd '$(BUILD)/deb'

dist: ## the last commit's files, build/verifierd-VERSION.tar.gz
	@mkdir -p $(BUILD)
	git archive --format=tar.gz --prefix=verifierd-$(VERSION)/ -o $(BUILD)/verifierd-$(VERSION).tar.gz HEAD

-include $(shell find $(out) -name '*.d' 2>/dev/null)
