# One makefile. Sources are found by folder: a new .c file or test needs no edit here.
#
#   make            the server and command line at build/belay, the client library beside it
#   make serve      install what is needed, build, start a server on 127.0.0.1:7117
#   make cluster    three nodes on loopback, clients at 127.0.0.1:7117, 7118, 7119
#   make test       install what is needed, build, run every test; last line "N passed, N failed"
#   make quick      two minutes of it, for every edit
#   make check | unit | model | fuzz-short | e2e | tidy    the parts of it
#   make fuzz | soak | bench | mutants    long runs, by hand
#   make console    the web console anew, from console/src (needs Node)
#   make install    binary, library, header, man pages, completions to DESTDIR/PREFIX
#   make deb        Debian packages in build/deb
#
# VARIANT = release (default) | debug | asan | tsan | fuzz, each in build/$(VARIANT)/.
# CONSOLE=0 leaves the web console out. V=1 shows the commands. All processors are used unless -j says otherwise.
VARIANT ?= release
V       ?= 0
# A make that another one starts has the jobs of that one.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif
ifeq ($(V),0)
Q := @
endif
# $(call say,WHAT,FILE): one short line a file; none with V=1, where the command is seen, or -s.
quiet := $(findstring s,$(firstword -$(MAKEFLAGS)))
say = $(if $(Q),$(if $(quiet),,@printf '  %-5s %s\n' '$(1)' '$(2)'))
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
OUT     := build/$(VARIANT)$(if $(findstring clang,$(CC)),-clang)

WARN := -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion \
        -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith \
        -Wcast-align -Wcast-qual -Wwrite-strings -Wformat=2 -Wundef -Wvla \
        -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference -Wdouble-promotion
GCC_WARN := -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init
ifneq ($(findstring clang,$(CC)),clang)
WARN += $(GCC_WARN)
endif
HARDEN := -fstack-protector-strong -fno-strict-aliasing -fno-common -fno-omit-frame-pointer
# Where the processor checks jumps (x86-64), the compiler marks their targets.
HARDEN += $(shell $(CC) -fcf-protection -fsyntax-only -xc /dev/null 2>/dev/null && echo -fcf-protection)

# llhttp: a library where the distribution has one (Debian 13), else its sources (Debian 12).
LLHTTP_LIB := $(shell pkg-config --libs libllhttp 2>/dev/null)
LLHTTP_SRC := $(if $(LLHTTP_LIB),,$(wildcard /usr/share/llhttp/*.c))
LLHTTP_INC := $(if $(LLHTTP_LIB),$(shell pkg-config --cflags libllhttp),-isystem /usr/share/include/llhttp)

CPPFLAGS := -Isrc -Iinclude -Itests/support -D_GNU_SOURCE -MMD -MP $(LLHTTP_INC) \
            -isystem $(shell pg_config --includedir 2>/dev/null || echo /usr/include)
ifeq ($(CONSOLE),0)
CPPFLAGS += -DBELAY_NO_CONSOLE
endif
CFLAGS   := -std=c11 -g -fPIC -fvisibility=hidden $(WARN) $(HARDEN)
CFLAGS_debug   := -Og -DBELAY_SLOW_CHECKS
CFLAGS_asan    := -O1 -DBELAY_SLOW_CHECKS -fsanitize=address,undefined -fno-sanitize-recover=all
CFLAGS_tsan    := -O1 -DBELAY_SLOW_CHECKS -fsanitize=thread
CFLAGS_fuzz    := -O1 -DBELAY_SLOW_CHECKS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
CFLAGS_release := -O2 -D_FORTIFY_SOURCE=2
# gcc clears and copies our structs (100 to 500 bytes) with "rep stos", whose start alone takes as
# long as the work: plain vector stores save a tenth of a request's time.
ifeq ($(shell uname -m)$(findstring clang,$(CC)),x86_64)
STORES := vector_loop:512:noalign,libcall:-1:noalign
CFLAGS_release += -mmemset-strategy=$(STORES) -mmemcpy-strategy=$(STORES)
endif
CFLAGS  += $(CFLAGS_$(VARIANT))
LDFLAGS_release := -pie -Wl,-z,relro,-z,now
LDFLAGS := $(LDFLAGS_$(VARIANT))
LDLIBS  := $(LLHTTP_LIB) -luv -lraft -lpq -lssl -lcrypto -lpthread -lm

MAIN  := src/cli/main.c
SRC   := $(filter-out $(MAIN),$(wildcard src/*/*.c src/*/*/*.c))
OBJ   := $(SRC:%.c=$(OUT)/%.o) $(patsubst /usr/share/llhttp/%.c,$(OUT)/llhttp/%.o,$(LLHTTP_SRC))
LIB   := $(OUT)/libcore.a
# What libbelay is made of: nothing of the server.
CLIENT_OBJ := $(patsubst %.c,$(OUT)/%.o,$(wildcard src/client/*.c src/proto/resp*.c) \
              src/tls/tls.c src/proto/message.c src/base/arena.c src/base/err.c src/base/buf.c src/base/check.c)
# What libbelay_queue is made of: the worker, for C functions. Apart, because it needs libpq and libuv.
QUEUE_OBJ := $(patsubst %.c,$(OUT)/%.o,$(wildcard src/queue/*.c) \
             $(addprefix src/base/,buf.c check.c err.c log.c mem.c))
TESTS := $(patsubst %.c,$(OUT)/%,$(wildcard tests/unit/test_*.c))
MODEL := $(patsubst %.c,$(OUT)/%,$(wildcard tests/model/model_*.c))
SIM   := $(OUT)/tests/sim/sim
# Programs of the tests with real nodes.
FAULTS := $(patsubst %.c,$(OUT)/%,$(wildcard tests/faults/*.c))
FUZZ  := $(patsubst %.c,$(OUT)/%,$(wildcard tests/fuzz/fuzz_*.c))
# What tests share: linked into every unit, model and fuzz test that needs it.
SUPPORT := $(OUT)/libsupport.a
SUPPORT_OBJ := $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/support/*.c))
BENCH := $(patsubst %.c,$(OUT)/%,$(wildcard bench/bench_*.c))

all: build/belay lib

build/belay: $(OUT)/belay
	@cp -f $< $@.new && mv -f $@.new $@

# The program's memory is counted where it is allocated: src/base/tally.h.
TALLY := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free
$(OUT)/belay: LDFLAGS += $(TALLY)
$(OUT)/belay: $(MAIN:%.c=$(OUT)/%.o) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

lib: $(OUT)/libbelay.a $(OUT)/libbelay.so $(OUT)/libbelay_queue.a $(OUT)/libbelay_queue.so

# One object whose inner names are local: a program may have its own buf_put().
$(OUT)/libbelay.a: $(CLIENT_OBJ)
	$(call say,AR,$@)
	@rm -f $@
	$(Q)ld -r $^ -o $(OUT)/libbelay.o
	$(Q)objcopy --localize-hidden $(OUT)/libbelay.o
	$(Q)ar rcs $@ $(OUT)/libbelay.o

$(OUT)/libbelay_queue.a: $(QUEUE_OBJ)
	$(call say,AR,$@)
	@rm -f $@
	$(Q)ld -r $^ -o $(OUT)/libbelay_queue.o
	$(Q)objcopy --localize-hidden $(OUT)/libbelay_queue.o
	$(Q)ar rcs $@ $(OUT)/libbelay_queue.o

$(OUT)/libbelay_queue.so: $(QUEUE_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,libbelay_queue.so.0 $^ -lpq -luv -o $@

$(OUT)/libbelay.so: $(CLIENT_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,libbelay.so.0 $^ -lssl -lcrypto -o $@

$(LIB): $(OBJ)
	$(call say,AR,$@)
	@rm -f $@
	$(Q)ar rcs $@ $^

# What is compiled with other flags is compiled again.
FLAGS := $(OUT)/flags
$(FLAGS): FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CPPFLAGS) $(CFLAGS)' | cmp -s - $@ || echo '$(CC) $(CPPFLAGS) $(CFLAGS)' >$@

$(OUT)/%.o: %.c $(FLAGS)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$(OUT)/src/queue/schema.o: src/queue/schema.sql
$(OUT)/src/command/openapi.o: src/command/schemas.json
# The console is built by hand (make console) and committed: make needs no Node for it.
$(OUT)/src/command/console.o: $(wildcard console/dist/*)

# `belay version --json` names the commit; without a repository of our own it is not known.
COMMIT := $(if $(wildcard .git),$(shell git rev-parse HEAD 2>/dev/null))
$(OUT)/commit: FORCE
	@mkdir -p $(@D)
	@echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' >$@
$(OUT)/src/cli/main.o: $(OUT)/commit
$(OUT)/src/cli/main.o: private CPPFLAGS += -DBELAY_COMMIT='"$(COMMIT)"'

$(OUT)/llhttp/%.o: /usr/share/llhttp/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -O2 -g -fPIC $(filter -fsanitize%,$(CFLAGS_$(VARIANT))) -I/usr/share/include/llhttp -c $< -o $@

$(SUPPORT): $(SUPPORT_OBJ)
	$(call say,AR,$@)
	@rm -f $@
	$(Q)ar rcs $@ $^

# The failing allocator of these tests stands between libbelay and libc.
$(OUT)/tests/unit/test_client_oom $(OUT)/tests/unit/test_client_proxy: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup

$(TESTS): $(OUT)/%: $(OUT)/%.o $(SUPPORT) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ -lcmocka $(LDLIBS) -o $@

$(MODEL) $(BENCH): $(OUT)/%: $(OUT)/%.o $(SUPPORT) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(FAULTS): $(OUT)/%: $(OUT)/%.o $(OUT)/libbelay.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ -lssl -lcrypto -o $@

# The simulator's judge listens between the order, the engine and the machine.
$(SIM): LDFLAGS += -Wl,--wrap=engine_decode,--wrap=engine_adopt,--wrap=engine_stamp \
                   -Wl,--wrap=machine_apply,--wrap=machine_query,--wrap=machine_session \
                   -Wl,--wrap=remaining_tell
$(SIM): $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/sim/*.c)) $(SUPPORT) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(FUZZ): $(OUT)/%: $(OUT)/%.o $(SUPPORT) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer $^ -ljson-c $(LDLIBS) -o $@

tests: $(TESTS)
faults: $(FAULTS)
models: $(MODEL)
sim: $(SIM)
fuzzers: $(FUZZ)
benches: $(BENCH) build/belay

deps:
	@scripts/deps

deps-serve:
	@scripts/deps serve

serve: deps-serve
	@$(MAKE) --no-print-directory build/belay
	@exec build/belay serve --listen 127.0.0.1:7117 --data ./data

cluster: deps-serve
	@$(MAKE) --no-print-directory build/belay
	@exec scripts/cluster

test: deps
	@tools/test.sh

check unit model e2e fuzz-short tidy tsan fuzz soak canaries quick:
	@tools/test.sh $@

# For editors and clang tools.
compile_commands.json: FORCE
	@{ echo '['; for f in $(SRC) $(MAIN); do printf '%s{"directory":"%s","file":"%s","command":"%s"}' \
	    "$$sep" "$(CURDIR)" "$$f" '$(subst ",\",$(CC) $(CPPFLAGS) $(CFLAGS)) -c '"$$f"; sep=','; done; echo ']'; } >$@

console: console/node_modules/.belay-lock
	$(Q)cd console && node types.mjs && node_modules/.bin/tsc && node build.mjs
console/node_modules/.belay-lock: console/package-lock.json
	$(Q)cd console && npm ci --silent --no-audit --no-fund --ignore-scripts && cp package-lock.json node_modules/.belay-lock

bench:
	@bench/run

mutants:
	@tools/mutants.sh

PREFIX  ?= /usr/local
VERSION := $(shell sed -n 's/^\#define BELAY_VERSION *"\(.*\)"/\1/p' include/belay_version.h)
DEST    := $(DESTDIR)$(PREFIX)
LIBDIR  ?= lib
LIBS    := $(DEST)/$(LIBDIR)

install: all
	install -d $(DEST)/bin $(LIBS)/pkgconfig $(DEST)/include $(DEST)/share/man/man1 \
	    $(DEST)/share/bash-completion/completions $(DEST)/share/zsh/site-functions $(DEST)/share/fish/vendor_completions.d
	install build/belay $(DEST)/bin/belay
	install -m 644 include/belay.h include/belay_version.h include/belay_txn.h include/belay_queue.h $(DEST)/include/
	install -m 644 $(OUT)/libbelay_queue.a $(LIBS)/libbelay_queue.a
	install -m 755 $(OUT)/libbelay_queue.so $(LIBS)/libbelay_queue.so.$(VERSION)
	ln -sf libbelay_queue.so.$(VERSION) $(LIBS)/libbelay_queue.so.0
	ln -sf libbelay_queue.so.0 $(LIBS)/libbelay_queue.so
	install -m 644 $(OUT)/libbelay.a $(LIBS)/libbelay.a
	install -m 755 $(OUT)/libbelay.so $(LIBS)/libbelay.so.$(VERSION)
	ln -sf libbelay.so.$(VERSION) $(LIBS)/libbelay.so.0
	ln -sf libbelay.so.0 $(LIBS)/libbelay.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' tools/belay.pc.in >$(LIBS)/pkgconfig/belay.pc
	build/belay help --man >$(DEST)/share/man/man1/belay.1
	{ build/belay help --names; build/belay help --names queue; } | while read -r c; do \
	    build/belay help --man $$c >$(DEST)/share/man/man1/belay-$$(echo $$c | tr ' ' -).1 || exit 1; done
	build/belay help --completion bash >$(DEST)/share/bash-completion/completions/belay
	build/belay help --completion zsh >$(DEST)/share/zsh/site-functions/_belay
	build/belay help --completion fish >$(DEST)/share/fish/vendor_completions.d/belay.fish

deb:
	@scripts/deps deb
	@scripts/deb

format:
	clang-format -i $(shell git ls-files '*.c' '*.h')

clean:
	rm -rf build

.PHONY: FORCE console all lib tests faults deps-serve quick models sim fuzzers benches deps serve cluster test check unit model e2e fuzz-short tidy tsan canaries \
        fuzz soak bench install deb format clean
.SECONDARY:
-include $(shell find build -name '*.d' -type f 2>/dev/null)
