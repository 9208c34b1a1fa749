package bed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports claims free TCP ports until Close. They are below those that the kernel gives to outgoing connections (from
// 32768 on): one of these would be taken while its server is away, even by a client that tries to reach that very
// server.
func (b *Bed) Ports(n int) ([]int, error) {
	const first, count, tries = 10000, 20000, 1000
	var ports []int
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := first + rand.N(count)
		if b.hold(fmt.Sprintf("port-%d", port), func() error { return portFree(port) }) == nil {
			ports = append(ports, port)
		}
	}
	return nil, errors.New("find a free port: a thousand ports are taken; remove test beds that are no longer used")
}

func portFree(port int) error {
	probe, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
	if err != nil {
		return err
	}
	return probe.Close()
}

// hold keeps other beds off a resource of the network namespace until Close or the end of this process, by an abstract
// socket of the name: that belongs to the network namespace too, and needs no cleaning. It fails while another bed
// holds the resource, or with the error of free, which looks for what isn't held: others' use, and what a killed bed
// has left.
func (b *Bed) hold(name string, free func() error) error {
	claim, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@kubelot-test-" + name, Net: "unix"})
	if err != nil {
		return err
	}
	if err := free(); err != nil {
		return errors.Join(err, claim.Close())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = append(b.claims, claim)
	return nil
}
