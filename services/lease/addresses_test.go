package lease

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/config"
)

func testHost(dns ...string) host {
	parse := func(texts []string) []netip.Addr {
		var ips []netip.Addr
		for _, text := range texts {
			ips = append(ips, netip.MustParseAddr(text))
		}
		return ips
	}
	return host{
		uptime: time.Minute,
		local: func() ([]netip.Addr, error) {
			return parse([]string{"127.0.0.1", "10.0.0.5", "10.0.0.6", "fd00::5"}), nil
		},
		lookup: func(context.Context, string) ([]netip.Addr, error) { return parse(dns), nil },
		route: func(want netip.Addr) (netip.Addr, error) {
			if want.Is6() {
				return netip.MustParseAddr("fd00::5"), nil
			}
			return netip.MustParseAddr("10.0.0.6"), nil
		},
	}
}

func TestAddresses(t *testing.T) {
	for name, test := range map[string]struct {
		config config.Config
		host   host
		want   []string
		fails  bool
	}{
		"default route":               {host: testHost(), want: []string{"10.0.0.6"}},
		"by name":                     {host: testHost("10.0.0.5"), want: []string{"10.0.0.5"}},
		"by name, IPv4 before IPv6":   {host: testHost("fd00::5", "10.0.0.5"), want: []string{"10.0.0.5"}},
		"by name, of another machine": {host: testHost("10.9.9.9"), want: []string{"10.0.0.6"}},
		"by name, loopback":           {host: testHost("127.0.0.1"), want: []string{"10.0.0.6"}},
		"IPv6 wanted": {
			config: config.Config{NodeIPs: []netip.Addr{netip.IPv6Unspecified()}},
			host:   testHost(), want: []string{"fd00::5"},
		},
		"dual stack": {config: config.Config{NodeIPs: []netip.Addr{
			netip.MustParseAddr("fd00::5"),
			netip.MustParseAddr("10.0.0.5"),
		}}, host: testHost(), want: []string{"fd00::5", "10.0.0.5"}},
		"not this machine's": {
			config: config.Config{NodeIPs: []netip.Addr{netip.MustParseAddr("10.9.9.9")}},
			host:   testHost(), fails: true,
		},
		"loopback given": {
			config: config.Config{NodeIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
			host:   testHost(), fails: true,
		},
		"cloud provider sets them": {config: config.Config{CloudProvider: "external"}, host: testHost()},
		"cloud provider, address given": {config: config.Config{
			CloudProvider: "external",
			NodeIPs:       []netip.Addr{netip.MustParseAddr("10.0.0.5")},
		}, host: testHost(), want: []string{"10.0.0.5"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.NodeName = "n1"
			addresses, err := findAddresses(t.Context(), &test.config, test.host)
			if (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %t", err, test.fails)
			}
			if err != nil {
				return
			}
			var got []string
			for _, a := range addresses[:len(addresses)-1] {
				got = append(got, a.Address)
			}
			if last := addresses[len(addresses)-1]; !slices.Equal(got, test.want) || last.Type != corev1.NodeHostName ||
				last.Address != "n1" {
				t.Errorf("addresses %v, want %v and the host name", addresses, test.want)
			}
		})
	}
}

func TestNoAddressAtAllIsAnError(t *testing.T) {
	h := testHost()
	h.route = func(netip.Addr) (netip.Addr, error) { return netip.Addr{}, errors.New("no default routes") }
	if _, err := findAddresses(t.Context(), &config.Config{NodeName: "n1"}, h); err == nil {
		t.Error("a node without an address got one")
	}
}

// A name server that is away for a moment doesn't give the node another address. A name that is gone does.
func TestANameServerThatIsAwayChangesNoAddress(t *testing.T) {
	var failure error
	h := testHost("10.0.0.5")
	asked := h.lookup
	h.lookup = remembering(func(ctx context.Context, name string) ([]netip.Addr, error) {
		if failure != nil {
			return nil, failure
		}
		return asked(ctx, name)
	})
	for _, step := range []struct {
		failure error
		want    string
	}{
		{nil, "10.0.0.5"},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, "10.0.0.5"},
		{context.DeadlineExceeded, "10.0.0.5"},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, "10.0.0.6"},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, "10.0.0.6"},
	} {
		failure = step.failure
		got, err := findAddresses(t.Context(), &config.Config{NodeName: "n1"}, h)
		if err != nil || got[0].Address != step.want {
			t.Errorf("after %v: %v, %v; want %s", step.failure, got, err, step.want)
		}
	}
}
