"""Where images come from: folders, lists of files, archives and object stores."""
