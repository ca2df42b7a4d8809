"""The machine: its devices and their data sheets, the mesh over them, its cores, and the other processes of a run."""
