package bed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports claims free TCP ports until Close. They are below those that the kernel gives to outgoing connections (from 32768 on): one of
// these would be taken while its server is away, be it by a client that tries to reach just that server. An abstract socket
// with the port's name keeps other beds off.
func (b *Bed) Ports(n int) ([]int, error) {
	const first, count, tries = 10000, 20000, 1000
	var ports []int
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := first + rand.N(count)
		if claim, err := claimPort(port); err == nil {
			b.claims = append(b.claims, claim)
			ports = append(ports, port)
		}
	}
	return nil, errors.New("find a free port: a thousand ports are taken; remove test beds that are no longer used")
}

func claimPort(port int) (net.Listener, error) {
	var config net.ListenConfig
	claim, err := config.Listen(context.Background(), "unix", fmt.Sprintf("@kubelot-test-port-%d", port))
	if err != nil {
		return nil, err
	}
	probe, err := config.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, errors.Join(err, claim.Close())
	}
	return claim, probe.Close()
}
