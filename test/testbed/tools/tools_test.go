package tools

import "testing"

// A machine that was given all programs builds none.
func TestGivenPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(ProgramsEnv, dir)
	box, err := Ensure(t.Context(), nil, WithControlPlane)
	if err != nil || !box.Given || box.Path("runc") != dir+"/runc" {
		t.Errorf("the box is %+v, error %v", box, err)
	}
}
