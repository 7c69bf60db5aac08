# SPDX-License-Identifier: MIT
#
# make            the release build in build/release: libresc, rescd, resctl
# make demo       eight prefork workers, a dependency that fails, one shared view that stops them together; DEP=redis: a real Redis
# make experiments   the published experiments, played; writes docs/experiments.md
# make check      all tests
# make bench      what it costs, against baselines measured in the same run
# make install    PREFIX=/usr/local DESTDIR=
#
# make soak       KILLS=10000 SEED=1: the kill storm, long; its short form is a part of make check
# make fuzz       SECONDS=60 a target; make lint: clang-tidy, cppcheck, clang-format
#
# VARIANT: release | test (test clock and failpoints) | asan | tsan (both with the test clock) | asan-clock (asan in real time, for the storm)
#          | fuzz (clang's libFuzzer, see tests/fuzz).
# CC=clang works. V=1 shows commands.

VERSION := 0.1.0
SOVERSION := 0
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
VARIANT ?= release
CC ?= cc
ifeq ($(origin CC),default)
CC := gcc
endif
B := build/$(VARIANT)
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $(2))

WARN := -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
OPT_release := -O2 -g
# The valgrind of Debian 12 does not read the DWARF 5 of its clang.
OPT_test := -O1 -gdwarf-4 -DRESC_TEST_CLOCK
OPT_clang := -O1
OPT_asan := -O1 -g1 -DRESC_TEST_CLOCK -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT_asan-clock := $(filter-out -DRESC_TEST_CLOCK,$(OPT_asan))
OPT_tsan := -O1 -g1 -DRESC_TEST_CLOCK -fsanitize=thread
OPT_fuzz := $(OPT_asan) -fsanitize=fuzzer-no-link -fsanitize-ignorelist=tests/fuzz/ubsan.ignore
SAN := $(filter -fsanitize=%,$(OPT_$(VARIANT)))
CFLAGS ?=
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARN) $(OPT_$(VARIANT)) -fPIC -fvisibility=hidden -ftls-model=initial-exec -pthread -Ilib -Idaemon -Itools -Itools/rehearse -MMD -MP $(CFLAGS)
ALL_LDFLAGS = -pthread $(SAN) $(LDFLAGS)

lib_o := $(patsubst %.c,$(B)/%.o,$(wildcard lib/*.c))
# What rescd and resctl share is an archive: each takes what it calls.
common_o := $(patsubst %.c,$(B)/%.o,$(filter-out daemon/rescd.c,$(wildcard daemon/*.c)))
resctl_o := $(patsubst %.c,$(B)/%.o,$(wildcard tools/*.c))
rehearse_o := $(patsubst %.c,$(B)/%.o,$(wildcard tools/rehearse/*.c))

unit_t := $(patsubst %.c,$(B)/%,$(wildcard tests/unit/test_*.c))
fuzz_t := $(patsubst %.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))
helper_t := $(patsubst %.c,$(B)/%,$(wildcard tests/system/*.c))
storm := $(B)/tests/soak/storm

.PHONY: all lib units helpers versions fuzzers storm demo experiments check fuzz soak lint bench install clean packages packages-check
all: lib $(B)/rescd $(B)/resctl $(B)/resctl-rehearse
lib: $(B)/libresc.so $(B)/libresc.a
units: $(unit_t)
helpers: $(helper_t)
fuzzers: $(fuzz_t)
storm: $(storm)

$(B)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# The archive is for our own programs and tests; workers link the shared library, which exports resc.h alone.
$(B)/libresc.a: $(lib_o)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/libresc.so.$(SOVERSION): $(lib_o) lib/libresc.map
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,libresc.so.$(SOVERSION) -Wl,--version-script=lib/libresc.map -Wl,-z,defs -o $@ $(lib_o) -lurcu-bp -lurcu-common
$(B)/libresc.so: $(B)/libresc.so.$(SOVERSION)
	$(Q)ln -sf $(<F) $@

$(B)/libcommon.a: $(common_o)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/rescd: $(B)/daemon/rescd.o $(B)/libcommon.a $(B)/libresc.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ljansson -lmicrohttpd -lurcu-bp -lurcu-common
$(B)/resctl: $(resctl_o) $(B)/libcommon.a $(B)/libresc.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ljansson -lurcu-bp -lurcu-common -lm
# resctl rehearse: a program of its own, so that resctl does without an HTTP client. Its parts are an archive for the tests of each.
$(B)/librehearse.a: $(filter-out %/main.o,$(rehearse_o))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/resctl-rehearse: $(B)/tools/rehearse/main.o $(B)/librehearse.a $(B)/libtools.a $(B)/libcommon.a $(B)/libresc.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcurl -ljansson -lurcu-bp -lurcu-common -lm

$(B)/bench: $(patsubst %.c,$(B)/%.o,$(wildcard tests/bench/*.c)) $(B)/libresc.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ljansson -lurcu-bp -lurcu-common -lm
$(storm): $(patsubst %.c,$(B)/%.o,$(wildcard tests/soak/*.c)) $(B)/libtools.a $(B)/libcommon.a $(B)/libresc.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -ljansson -lurcu-bp -lurcu-common -lm
$(B)/tests/unit/%: $(B)/tests/unit/%.o $(B)/librehearse.a $(B)/libtools.a $(B)/libcommon.a $(B)/libresc.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcheck -lsubunit -lcurl -ljansson -lmicrohttpd -lurcu-bp -lurcu-common -lrt -lm
$(B)/tests/system/%: $(B)/tests/system/%.o $(B)/libresc.so
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< -L$(B) -lresc -Wl,-rpath,'$$ORIGIN/../..' -ljansson
# An older and a newer version of all programs, in trees of their own below build: see tests/upgrade/derive.
versions:
	$(Q)for version in older newer; do tests/upgrade/derive $$version build/$$version && $(MAKE) --no-print-directory -C build/$$version \
		VARIANT=test OPT_test='-O0 -DRESC_TEST_CLOCK' lib build/test/rescd build/test/resctl build/test/tests/system/worker || exit 1; done
# Without libFuzzer (VARIANT=asan, any compiler) a target replays the inputs that it is given.
ifeq ($(VARIANT),fuzz)
FUZZ_LINK := -fsanitize=fuzzer
else
$(fuzz_t:%=%.o): ALL_CFLAGS += -DFUZZ_STANDALONE
endif
# Who sleeps moves the test clock on instead: tests/unit/sleepless.h.
$(B)/tests/fuzz/fuzz_segment $(B)/tests/unit/test_corrupt: ALL_LDFLAGS += -Wl,--wrap=nanosleep,--wrap=syscall
# Programs as functions, and what they meet: tests/fuzz/program.h.
PROGRAMS := $(B)/tests/fuzz/resctl_main.o $(B)/tests/fuzz/rescd_main.o
$(B)/tests/fuzz/resctl_main.o: $(B)/tools/resctl.o
$(B)/tests/fuzz/rescd_main.o: $(B)/daemon/rescd.o
$(PROGRAMS):
	$(Q)mkdir -p $(@D)
	$(Q)objcopy --redefine-sym main=$(basename $(@F)) $< $@
PROGRAM_FUZZERS := $(B)/tests/fuzz/fuzz_command $(B)/tests/fuzz/fuzz_readers
$(PROGRAM_FUZZERS): $(PROGRAMS)
$(PROGRAM_FUZZERS): ALL_LDFLAGS += -Wl,--wrap=_exit,--wrap=atexit,--wrap=execv,--wrap=isatty,--wrap=nanosleep,--wrap=map_open,--wrap=map_close
$(B)/tests/fuzz/fuzz_command: ALL_LDFLAGS += -Wl,--wrap=poll,--wrap=config_load,--wrap=config_check
$(B)/tests/fuzz/fuzz_readers: ALL_LDFLAGS += -Wl,--wrap=loop_run,--wrap=timer_open,--wrap=log_line
# Kept, so that only what changed is compiled again.
.SECONDARY: $(fuzz_t:%=%.o)
$(B)/libtools.a: $(resctl_o)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(B)/librehearse.a $(B)/libtools.a $(B)/libcommon.a $(B)/libresc.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $(FUZZ_LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcurl -ljansson -lmicrohttpd -lurcu-bp -lurcu-common -lm

# What Debian 12 has to provide: to build and to run the demo; to test.
PACKAGES := gcc libc6-dev liburcu-dev libjansson-dev libmicrohttpd-dev libcurl4-openssl-dev
PACKAGES_CHECK := $(PACKAGES) check clang libclang-rt-14-dev clang-tidy clang-format cppcheck valgrind spin python3-pytest python3-pytest-xdist python3-hypothesis python3-jsonschema python3-prometheus-client python3-selenium chromium-headless-shell chromium-driver procps util-linux
install_missing = @tests/packages $(1)
packages:
	$(call install_missing,$(PACKAGES))
packages-check:
	$(call install_missing,$(PACKAGES_CHECK))

# DEP=redis: a real Redis instead of the lab's own small server.
demo: packages
	$(if $(filter redis,$(DEP)),$(call install_missing,redis-server))
	$(Q)$(MAKE) --no-print-directory VARIANT=release all
	$(Q)build/release/resctl rehearse $(DEMOFLAGS) examples/scenarios/demo$(addprefix -,$(DEP)).json

# EXPERIMENTFLAGS="--jobs 1": one at a time, on a host that has something else to do.
experiments: packages
	$(call install_missing,python3)
	$(Q)$(MAKE) --no-print-directory VARIANT=release all
	$(Q)/usr/bin/python3 tests/experiments --page docs/experiments.md $(EXPERIMENTFLAGS)

check: packages-check
	$(Q)/usr/bin/python3 tests/check $(CHECKFLAGS)

lint: packages-check
	$(Q)tests/lint --all

# SECONDS a target; FUZZFLAGS="--jobs 2 segment readers": two at a time, of these targets.
fuzz: packages-check
	$(Q)tests/fuzz/run --seconds $(or $(SECONDS),60) --json build/fuzz.json $(FUZZFLAGS)

# Against VARIANT; without SEED another schedule each time. The seed is said first, and replays. Then the field cases with all their rounds.
soak: packages-check
	$(Q)$(MAKE) --no-print-directory all storm
	$(Q)$(storm) --kills $(or $(KILLS),10000) $(if $(SEED),--seed $(SEED)) $(SOAKFLAGS)
	$(Q)$(MAKE) --no-print-directory VARIANT=test all helpers
	$(Q)RESC_LONG=1 RESC_VARIANT=test /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/system/test_cases_segment.py

bench: packages
	$(Q)$(MAKE) --no-print-directory VARIANT=release all build/release/bench
	$(Q)build/release/bench --json build/bench.json $(BENCHFLAGS)

# A page explains several functions; man finds it by the name of each.
man_pages = $(wildcard docs/*.[138])
install: all
	$(call say,INST,$(DESTDIR)$(PREFIX))
	$(Q)install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(Q)install -m 755 $(B)/libresc.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libresc.so.$(VERSION)
	$(Q)ln -sf libresc.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libresc.so.$(SOVERSION)
	$(Q)ln -sf libresc.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libresc.so
	$(Q)install -m 644 $(B)/libresc.a $(DESTDIR)$(LIBDIR)/libresc.a
	$(Q)install -m 644 lib/resc.h $(DESTDIR)$(PREFIX)/include/resc.h
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' lib/libresc.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/libresc.pc
	$(Q)install -m 755 $(B)/rescd $(DESTDIR)$(PREFIX)/sbin/rescd
	$(Q)install -m 755 $(B)/resctl $(DESTDIR)$(PREFIX)/bin/resctl
	$(Q)install -D -m 755 $(B)/resctl-rehearse $(DESTDIR)$(PREFIX)/libexec/resc/resctl-rehearse
	$(Q)install -m 644 daemon/rescd.service $(DESTDIR)$(PREFIX)/lib/systemd/system/rescd.service
	$(Q)for page in $(man_pages); do section=$${page##*.}; install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$$section/$${page##*/}; done
	$(Q)cd docs && for page in *.3; do for name in $$(sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z_]*\).*/\1/p' $$page); do \
		[ $$name.3 = $$page ] || ln -sf $$page $(DESTDIR)$(PREFIX)/share/man/man3/$$name.3; done; done
	$(Q)for file in docs/*.md docs/*.json examples/scenarios/*.json; do install -D -m 644 $$file $(DESTDIR)$(PREFIX)/share/doc/resc/$${file#docs/}; done

clean:
	$(Q)rm -rf build

-include $(wildcard $(B)/*/*.d $(B)/*/*/*.d)
