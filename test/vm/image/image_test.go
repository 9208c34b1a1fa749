package image

import (
	"slices"
	"testing"
	"testing/fstest"
)

// Whatever a recipe has is in its name, so that a change of it is never missed.
func TestHashOf(t *testing.T) {
	files := fstest.MapFS{"build.sh": {Data: []byte("make")}, "files/init": {Data: []byte("boot")}}
	list := []string{"systemd", "runc"}
	first, err := hashOf(files, list)
	if err != nil || len(first) != 16 {
		t.Fatalf("hashOf = %q, %v", first, err)
	}
	if again, _ := hashOf(files, slices.Clone(list)); again != first {
		t.Errorf("the same recipe has two names, %s and %s", first, again)
	}
	seen := map[string]string{first: "the first recipe"}
	for name, change := range map[string]func() (fstest.MapFS, []string){
		"another package": func() (fstest.MapFS, []string) { return files, []string{"systemd", "crun"} },
		"a package less":  func() (fstest.MapFS, []string) { return files, list[:1] },
		"other contents": func() (fstest.MapFS, []string) {
			return fstest.MapFS{"build.sh": {Data: []byte("make")}, "files/init": {Data: []byte("boo")}}, list
		},
		"another file": func() (fstest.MapFS, []string) {
			return fstest.MapFS{"build.sh": {Data: []byte("make")}, "files/more": {Data: []byte("boot")}}, list
		},
		"text that moves to the next file": func() (fstest.MapFS, []string) {
			return fstest.MapFS{"build.sh": {Data: []byte("mak")}, "files/init": {Data: []byte("eboot")}}, list
		},
	} {
		key, err := hashOf(change())
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[key]; other != "" {
			t.Errorf("%s has the name of %s", name, other)
		}
		seen[key] = name
	}
}

func TestRecipeIsComplete(t *testing.T) {
	for _, name := range []string{"build.sh", "files/init", "files/probe", "files/eth0.network"} {
		if data, err := recipe.ReadFile(name); err != nil || len(data) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	key, _ := hashOf(recipe, packages)
	t.Log("the recipe's name is", key)
}
