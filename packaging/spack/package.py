# SPDX-License-Identifier: Apache-2.0
"""Recipe of Spack: put it into a repository as packages/ppcli/package.py. It has not been run yet."""

from spack.package import *


class Ppcli(MesonPackage):
    """Trains neural networks as a pipeline of stages from one INI file, and shows what each stage did and waited for."""

    homepage = 'https://ppcli.example.org'
    license('Apache-2.0')

    # nothing has been released yet: spack dev-build ppcli@0.1.0 in the folder of the source
    version('0.1.0')

    variant('mpi', default=True, description='ranks as MPI processes')
    variant('hwloc', default=True, description='ranks and threads on cores near each other')
    variant('openblas', default=False, description='run.gemm = cblas')
    variant('cuda', default=False, description='GPUs')
    variant('curl', default=True, description='ppcli download over the network')

    depends_on('c', type='build')
    depends_on('meson@0.61:', type='build')
    depends_on('pkgconfig', type='build')
    depends_on('python@3.7:', type='build')
    depends_on('inih')
    depends_on('jansson@2.11:')
    depends_on('zlib-api')
    depends_on('pcre2')
    depends_on('jpeg')
    depends_on('libpng@1.6.32:')
    depends_on('mpi', when='+mpi')
    depends_on('hwloc@2.4:', when='+hwloc')
    depends_on('openblas threads=pthreads', when='+openblas')
    depends_on('cuda@12:', when='+cuda')
    depends_on('nccl@2.18:', when='+cuda')
    depends_on('curl@7.80:', when='+curl')

    def meson_args(self):
        def feature(name):
            return f'-D{name}={"enabled" if self.spec.satisfies("+" + name) else "disabled"}'

        return ['-Dtests=false', f'-Dblas={"openblas" if self.spec.satisfies("+openblas") else "none"}',
                f'-Dnccl={"enabled" if self.spec.satisfies("+cuda") else "disabled"}',
                *(feature(name) for name in ('mpi', 'hwloc', 'cuda', 'curl'))]

    @run_after('install')
    @on_package_attributes(run_tests=True)
    def check_training(self):
        """One epoch of the digits that come with ppcli, as a pipeline of two stages."""
        Executable(self.prefix.bin.ppcli)('train', 'mnist-sample.ini', '--epochs', '1', '--dir', '')
