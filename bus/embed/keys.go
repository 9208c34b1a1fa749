package embed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"kubelot.dev/daemon/atomicfile"
)

// KeyFile is the private key of one daemon in a key directory.
func KeyFile(dir, daemon string) string { return filepath.Join(dir, daemon+".nk") }

// users are the members of the crew with their keys, which are made where they don't exist yet, and their names by
// their public keys.
func (s *Server) users() (users []*server.NkeyUser, names map[string]string, err error) {
	names = map[string]string{}
	for _, m := range s.options.Crew.Daemons {
		path := KeyFile(s.options.KeyDir, m.Name)
		public, err := publicKey(path)
		if errors.Is(err, os.ErrNotExist) {
			public, err = makeKey(path)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("start the bus: the key of %s: %w", m.Name, err)
		}
		s.share(path, "kubelot-"+m.Name, 0o640)
		if other, taken := names[public]; taken {
			return nil, nil, fmt.Errorf("start the bus: %s and %s have the same key: remove %s and a new one is made",
				other, m.Name, path)
		}
		names[public] = m.Name
		users = append(users, &server.NkeyUser{Nkey: public, Permissions: permissions(m)})
	}
	return users, names, nil
}

func publicKey(path string) (string, error) {
	seed, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		return "", fmt.Errorf("%s holds no key: %w; remove it and a new one is made", path, err)
	}
	return pair.PublicKey()
}

// makeKey writes a new key.
func makeKey(path string) (string, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	seed, err := pair.Seed()
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(path, append(seed, '\n'), 0o600); err != nil {
		return "", err
	}
	return pair.PublicKey()
}

// share lets a group use a file, such as a daemon its key. Where there is no such group, as for kubelot up, only the
// owner may. If the bus may not give it the file, only root's daemons can use it.
func (s *Server) share(path, group string, mode fs.FileMode) {
	gid, err := s.options.Group(group)
	if errors.As(err, new(user.UnknownGroupError)) {
		return
	}
	if err == nil {
		err = os.Chown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		s.options.Log.Warn("a file can't be given to the group that needs it", "file", path, "group", group, "error", err,
			"hint", "is kubelot-bus in the group?")
	}
}

// lookupGroup is the ID of a group of the machine.
func lookupGroup(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}
