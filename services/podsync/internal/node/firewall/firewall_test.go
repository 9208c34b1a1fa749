package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// fake is a family's tables in memory.
type fake struct {
	have []string // "table chain", "table chain rule"
	fail error
}

func (f *fake) ChainExists(table, chain string) (bool, error) {
	return slices.Contains(f.have, table+" "+chain), f.fail
}

func (f *fake) NewChain(table, chain string) error {
	f.have = append(f.have, table+" "+chain)
	return f.fail
}

func line(table, chain string, rule []string) string {
	return table + " " + chain + " " + strings.Join(rule, " ")
}

func (f *fake) Exists(table, chain string, rule ...string) (bool, error) {
	return slices.Contains(f.have, line(table, chain, rule)), f.fail
}

func (f *fake) Insert(table, chain string, position int, rule ...string) error {
	f.have = append(f.have, line(table, chain, rule))
	return f.fail
}

func (f *fake) Append(table, chain string, rule ...string) error {
	return f.Insert(table, chain, 0, rule...)
}

func (f *fake) open() (tables, error) { return f, nil }

// What is flushed is made again within a minute; a failure is said once and tried again.
func TestChainsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		v4, v6 := &fake{}, &fake{fail: errors.New("locked")}
		ctx, cancel := context.WithCancel(t.Context())
		go run(ctx, []family{{"IPv4", true, v4.open}, {"IPv6", false, v6.open}}, slog.New(slog.NewTextHandler(&out, nil)))
		synctest.Wait()
		first := slices.Clone(v4.have)
		if len(first) != 5 {
			t.Errorf("made %q", first)
		}
		time.Sleep(10 * time.Minute)
		if len(v4.have) != 5 {
			t.Errorf("made more: %q", v4.have)
		}
		v4.have, v6.have, v6.fail = nil, nil, nil
		time.Sleep(lookEvery + time.Second)
		if !slices.Equal(v4.have, first) || !slices.Equal(v6.have, []string{"mangle KUBE-IPTABLES-HINT"}) {
			t.Errorf("after a flush: %q, %q", v4.have, v6.have)
		}
		cancel()
		synctest.Wait()
		if n := strings.Count(out.String(), "can't be made"); n != 1 ||
			strings.Count(out.String(), "chains of the kubelet made") != 3 {
			t.Errorf("it was said:\n%s", out.String())
		}
	})
}

func TestWithoutIPTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		missing := func() (tables, error) { return nil, &exec.Error{Name: "iptables", Err: exec.ErrNotFound} }
		go run(ctx, []family{{"IPv4", true, missing}}, slog.New(slog.NewTextHandler(&out, nil)))
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "level=INFO") {
			t.Errorf("it was said:\n%s", out.String())
		}
	})
}

// The real iptables has afterwards what the kubelet makes, in a network of the test's own: the node's kind, and each of
// the two as if it were the node's.
func TestRealTables(t *testing.T) {
	for _, kind := range []string{"", "-legacy", "-nft"} {
		t.Run("iptables"+kind, func(t *testing.T) {
			useKind(t, kind)
			realTables(t, kind)
		})
	}
}

// useKind has iptables and the programs that go with it be of that kind for the rest of the test.
func useKind(t *testing.T, kind string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, of := range []string{"", "-save"} {
			path, err := exec.LookPath(name + kind + of)
			if err == nil {
				err = os.Symlink(path, filepath.Join(dir, name+of))
			}
			if err != nil {
				t.Skip(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func realTables(t *testing.T, kind string) {
	runtime.LockOSThread() // it ends with the test, and its network with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("only root may make a network: %v", err)
	}
	for _, command := range []string{"iptables", "ip6tables"} {
		out, err := exec.Command(command, "-t", "mangle", "-S").CombinedOutput()
		if err != nil && kind != "" {
			t.Skipf("this kernel has no tables of %s%s: %v: %s", command, kind, err, out)
		}
	}
	for round := range 2 {
		for _, f := range families {
			made, err := f.keep()
			if err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
			if made != (round == 0) {
				t.Errorf("%s, round %d: made %v", f.name, round, made)
			}
		}
	}
	for command, want := range map[string][]string{
		"iptables-save -t mangle":  {":KUBE-IPTABLES-HINT - "},
		"ip6tables-save -t mangle": {":KUBE-IPTABLES-HINT - "},
		"iptables-save -t filter": {
			":KUBE-FIREWALL - ", "-A INPUT -j KUBE-FIREWALL\n", "-A OUTPUT -j KUBE-FIREWALL\n",
			`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" ` +
				"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n",
		},
	} {
		args := strings.Fields(command)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w: %s", command, err, out))
		}
		for _, text := range want {
			if strings.Count(string(out), text) != 1 {
				t.Errorf("%s has no %q, or several:\n%s", command, text, out)
			}
		}
	}
}
